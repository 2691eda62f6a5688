#include "model/embedding_lora.h"

#include <algorithm>

namespace loratrain {

bool EmbeddingLora::is_wanted(const LayerRows& rows) const {
    return !rows.base_alone &&
           std::any_of(rows.adapters.begin(), rows.adapters.end(), [&](AdapterId adapter) {
               return bank_.targets_outer(adapter, Linear::embedding);
           });
}

LoraIds EmbeddingLora::op_of(const LayerRows& rows, const std::int32_t* ids, const TensorView& s) {
    slots_.clear();
    for (std::size_t i = 0; i < rows.adapters.size(); ++i) {
        slots_.push_back(bank_.slot(rows.adapters[i], embedding_layer, Linear::embedding));
        slots_.back().column = rows.columns[i];
        slots_.back().scale *= scale_;
    }
    const Slice own = bank_.vocabulary();
    LoraIds op;
    op.ids = ids;
    op.columns = own.count;
    op.target = {slots_, s};
    op.rows = {rows.segments, rows.packed};
    op.still = static_cast<std::int32_t>(std::max<std::int64_t>(-1, pad_token_ - own.first));
    return op;
}

void EmbeddingLora::forward(const LayerRows& rows, const std::int32_t* ids, const TensorView& x) {
    if (!is_wanted(rows)) return;
    const Scratch s = workspace_.gradient(rows.tokens, rows.width);
    const LoraIds op = op_of(rows, ids, s);
    backend_.lora_gather_a(op);
    backend_.lora_expand({op.target, x, op.rows});
}

void EmbeddingLora::backward(const LayerRows& rows, const std::int32_t* ids, const TensorView& dx) {
    if (!is_wanted(rows)) return;
    const Scratch s = workspace_.gradient(rows.tokens, rows.width);
    LoraIds op = op_of(rows, ids, s);
    const Scratch ds = workspace_.input(rows.tokens, rows.width);
    backend_.lora_gather_a(op);
    backend_.lora_backward({dx, op.target, ds, op.rows});
    op.target.s = ds;
    backend_.lora_scatter_a(op);
}

}  // namespace loratrain
