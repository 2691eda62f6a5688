#include "model/outer_lora.h"

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

bool HeadLora::gather(const LayerRows& rows, const std::vector<LoraSegment>& segments) {
    const auto targets = [&](const LoraSegment& segment) {
        return bank_.targets_outer(rows.adapters[static_cast<std::size_t>(segment.slot)],
                                   Linear::head);
    };
    if (rows.base_alone || std::none_of(segments.begin(), segments.end(), targets)) return false;
    slots_.clear();
    for (std::size_t i = 0; i < rows.adapters.size(); ++i) {
        slots_.push_back(bank_.slot(rows.adapters[i], layers_, Linear::head));
        slots_.back().column = rows.columns[i];
        slots_.back().scale *= scale_;
    }
    return true;
}

Scratch HeadLora::forward(const LayerRows& rows, const std::vector<LoraSegment>& segments,
                          const TensorView& x, const TensorView& logits) {
    if (!gather(rows, segments)) return {};
    Scratch s = workspace_.gradient(x.rows, rows.width);
    const LoraTarget target{slots_, s};
    const LoraRows of{segments, rows.packed};
    backend_.lora_shrink({x, {&target, 1}, of});
    backend_.lora_expand({target, logits, of});
    return s;
}

void HeadLora::backward(const LayerRows& rows, const std::vector<LoraSegment>& segments,
                        const TensorView& x, const TensorView& s, const TensorView& d_logits,
                        const TensorView& dx) {
    if (!gather(rows, segments)) return;
    const Scratch ds = workspace_.input(x.rows, rows.width);
    const LoraRows of{segments, rows.packed};
    const LoraTarget with_ds{slots_, ds};
    backend_.lora_backward({d_logits, {slots_, s}, ds, of});
    backend_.lora_grad_a({x, {&with_ds, 1}, of});
    backend_.lora_expand_backward({dx, {&with_ds, 1}, of, true});
}

}  // namespace loratrain
