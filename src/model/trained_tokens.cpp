#include "model/trained_tokens.h"

#include <algorithm>

namespace loratrain {

bool TrainedTokens::is_wanted(const LayerRows& rows) const {
    return !rows.base_alone &&
           std::any_of(rows.adapters.begin(), rows.adapters.end(), [&](AdapterId adapter) {
               return bank_.has(adapter, TensorRole::token_rows);
           });
}

TokenRows TrainedTokens::op_of(const LayerRows& rows, const std::vector<LoraSegment>& segments) {
    slots_.clear();
    for (const AdapterId adapter : rows.adapters) slots_.push_back(bank_.token_slot(adapter));
    return {slots_, segments};
}

void TrainedTokens::embed(const LayerRows& rows, const std::int32_t* ids, const TensorView& x) {
    if (!is_wanted(rows)) return;
    backend_.place_tokens({op_of(rows, rows.segments), ids, x, embedding_scale_});
}

void TrainedTokens::embed_backward(const LayerRows& rows, const std::int32_t* ids,
                                   const TensorView& dx) {
    if (!is_wanted(rows)) return;
    const auto pad = static_cast<std::int32_t>(pad_token_ - bank_.vocabulary().first);
    backend_.place_tokens_backward({op_of(rows, rows.segments), ids, dx, embedding_scale_, pad});
}

void TrainedTokens::project(const LayerRows& rows, const std::vector<LoraSegment>& segments,
                            const TensorView& x, const TensorView& logits) {
    if (!tied_ || !is_wanted(rows)) return;
    backend_.token_logits({op_of(rows, segments), x, logits, logits_scale_});
}

bool TrainedTokens::project_backward(const LayerRows& rows,
                                     const std::vector<LoraSegment>& segments, const TensorView& x,
                                     const TensorView& d_logits, const TensorView& dx) {
    if (!tied_ || !is_wanted(rows)) return false;
    backend_.token_logits_backward({op_of(rows, segments), x, d_logits, dx, logits_scale_});
    return true;
}

}  // namespace loratrain
