#include "model/head_lora.h"

#include <algorithm>

namespace loratrain {

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
