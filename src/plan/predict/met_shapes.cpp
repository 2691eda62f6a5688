#include "plan/predict/met_shapes.h"

#include <algorithm>

#include "base/attention_shape.h"
#include "base/gemm_shape.h"
#include "plan/memory/memory_model.h"

namespace loratrain {

namespace {

/// Of a matrix that LoRA columns are beside; any multiple of 256 does.
constexpr std::int64_t matrix_columns = 4096;

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

std::int64_t head_rows(const ReplicaView& view, const StagePlan& stage) {
    return stage.has_head ? logits_chunk(view).rows : 0;
}

bool meets_new_shapes(const HostCosts& host) {
    return host.new_attention > 0 || host.new_rows.any() || host.new_targets.any();
}

double MetShapes::meet(std::size_t stage, std::int64_t head_rows, const HostCosts& host,
                       const Microbatch& microbatch) {
    const Sizes sizes = meets_new_shapes(host) ? sizes_of(microbatch) : Sizes{};
    if (sizes.tokens == 0) return 0.0;
    const auto graph = [&](const AttentionShape& of) {
        return Shape{of.samples, of.length, of.tokens};
    };
    const Shape forward =
        graph(attention_forward_shape(sizes.samples, sizes.longest, sizes.tokens));
    const Shape back = graph(attention_shape(sizes.samples, sizes.longest, sizes.tokens));
    const double length = sizes.squares / static_cast<double>(sizes.tokens);
    double seconds = 0.0;
    if (length > cudnn_forward_length && number_if_new(stage, Kind::attention, forward) > 0) {
        seconds += host.new_attention;
    }
    const bool backward = length > cudnn_backward_length && !microbatch.evaluation;
    if (backward && number_if_new(stage, Kind::attention_backward, back) > 0) {
        seconds += host.new_attention;
    }
    const std::int64_t width = microbatch.columns.augmented ? microbatch.columns.width : 0;
    seconds += meet_rows(stage, sizes.tokens, width, host.new_rows);
    return seconds + meet_targets(stage, sizes.targets, head_rows, host.new_targets);
}

double MetShapes::meet_rows(std::size_t stage, std::int64_t tokens, std::int64_t width,
                            const NewShapeLine& line) {
    const Shape shape{rows_alike(tokens).largest, columns_alike(matrix_columns + width).largest, 0};
    const std::int64_t nth = number_if_new(stage, Kind::rows, shape);
    return nth > 0 ? line.seconds(nth, static_cast<double>(shape[0])) : 0.0;
}

double MetShapes::meet_targets(std::size_t stage, std::int64_t targets, std::int64_t head_rows,
                               const NewShapeLine& line) {
    double seconds = 0.0;
    for (std::int64_t left = head_rows > 0 ? targets : 0; left > 0; left -= head_rows) {
        const Shape shape{rows_alike(std::min(left, head_rows)).largest, 0, 0};
        const std::int64_t nth = number_if_new(stage, Kind::targets, shape);
        if (nth > 0) seconds += line.seconds(nth, static_cast<double>(shape[0]));
    }
    return seconds;
}

double stall_seconds(const Plan& plan, const JointWindow& joint, MetShapes& met) {
    double most = 0.0;
    std::size_t number = 0;
    for (std::size_t r = 0; r < joint.replicas.size(); ++r) {
        const ReplicaView view = view_of(plan, plan.replicas[r]);
        const HostCosts& host = predicted_costs_of(view).host;
        for (const StagePlan& stage : view.replica.stages) {
            const std::int64_t rows = head_rows(view, stage);
            double seconds = 0.0;
            for (const Microbatch& microbatch : joint.replicas[r].microbatches) {
                seconds += met.meet(number, rows, host, microbatch);
            }
            most = std::max(most, seconds);
            ++number;
        }
    }
    return most;
}

std::int64_t MetShapes::number_if_new(std::size_t stage, Kind kind, const Shape& shape) {
    const auto of_stage = static_cast<std::int64_t>(stage);
    const auto of_kind = static_cast<std::int64_t>(kind);
    const bool is_new = met_.insert({of_stage, of_kind, shape[0], shape[1], shape[2]}).second;
    return is_new ? ++count_[{of_stage, of_kind}] : 0;
}

}  // namespace loratrain
