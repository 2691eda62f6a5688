#include "plan/predict/met_shapes.h"

#include <algorithm>

#include "base/attention_shape.h"
#include "base/gemm_shape.h"

namespace loratrain {

namespace {

/// What a microbatch's shapes depend on.
struct Sizes {
    std::int64_t samples = 0;
    std::int64_t longest = 0;
    std::int64_t tokens = 0;
    std::int64_t targets = 0;
    double squares = 0.0;
};

Sizes sizes_of(const Microbatch& microbatch) {
    Sizes sizes;
    for (const Segment& segment : microbatch.segments) {
        for (const SampleRef& sample : segment.samples) {
            const std::int64_t tokens = sample.tokens;
            ++sizes.samples;
            sizes.longest = std::max(sizes.longest, tokens);
            sizes.tokens += tokens;
            sizes.targets += sample.targets;
            sizes.squares += static_cast<double>(tokens) * static_cast<double>(tokens);
        }
    }
    return sizes;
}

}  // namespace

double MetShapes::meet(std::size_t stage, const StagePlan& part, const HostCosts& host,
                       const Microbatch& microbatch) {
    const bool any = host.new_attention > 0 || host.new_rows > 0 || host.new_targets > 0;
    const Sizes sizes = any ? sizes_of(microbatch) : Sizes{};
    if (sizes.tokens == 0) return 0.0;
    const AttentionShape attention = attention_shape(sizes.samples, sizes.longest, sizes.tokens);
    const Shape graph{attention.samples, attention.length, attention.tokens};
    const double length = sizes.squares / static_cast<double>(sizes.tokens);
    double seconds = 0.0;
    if (length > cudnn_forward_length && is_new(stage, Kind::attention, graph)) {
        seconds += host.new_attention;
    }
    const bool backward = length > cudnn_backward_length && !microbatch.evaluation;
    if (backward && is_new(stage, Kind::attention_backward, graph)) seconds += host.new_attention;
    const std::int64_t width = microbatch.columns.augmented ? microbatch.columns.width : 0;
    const Shape rows{sizes_alike(sizes.tokens).largest,
                     sizes_alike(std::max<std::int64_t>(1, width)).largest, 0};
    if (is_new(stage, Kind::rows, rows)) seconds += host.new_rows;
    if (!part.has_head || sizes.targets == 0) return seconds;
    const Shape targets{sizes_alike(sizes.targets).largest, 0, 0};
    return is_new(stage, Kind::targets, targets) ? seconds + host.new_targets : seconds;
}

}  // namespace loratrain
