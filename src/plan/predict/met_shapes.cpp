#include "plan/predict/met_shapes.h"

#include <algorithm>

#include "base/attention_shape.h"
#include "base/gemm_shape.h"
#include "plan/memory/memory_model.h"

namespace loratrain {

std::int64_t head_rows(const ReplicaView& view, const StagePlan& stage) {
    return stage.has_head ? logits_chunk(view).rows : 0;
}

bool meets_new_shapes(const HostCosts& host) {
    return host.new_attention > 0 || host.new_rows.any() || host.new_targets.any();
}

void SampleSizes::add(std::int64_t length) {
    ++samples;
    longest = std::max(longest, length);
    tokens += length;
    squares += static_cast<double>(length) * static_cast<double>(length);
}

double MetShapes::meet(std::size_t stage, std::int64_t head_rows, const HostCosts& host,
                       const Microbatch& microbatch) {
    SampleSizes sizes;
    std::int64_t targets = 0;
    if (!meets_new_shapes(host)) return 0.0;
    for (const Segment& segment : microbatch.segments) {
        for (const SampleRef& sample : segment.samples) {
            sizes.add(sample.tokens);
            targets += sample.targets;
        }
    }
    if (sizes.tokens == 0) return 0.0;
    const std::int64_t width = microbatch.columns.augmented ? microbatch.columns.width : 0;
    return meet_attention(stage, sizes, microbatch.evaluation, host.new_attention) +
           meet_rows(stage, sizes.tokens, width, host.new_rows) +
           meet_targets(stage, targets, head_rows, host.new_targets);
}

double MetShapes::meet_attention(std::size_t stage, const SampleSizes& sizes, bool evaluation,
                                 double each) {
    const auto graph = [](const AttentionShape& of) {
        return Shape{of.samples, of.length, of.tokens};
    };
    const double length = sizes.squares / static_cast<double>(sizes.tokens);
    double seconds = 0.0;
    if (length > cudnn_forward_length) {
        const Shape forward =
            graph(attention_forward_shape(sizes.samples, sizes.longest, sizes.tokens));
        if (number_if_new(stage, Kind::attention, forward) > 0) seconds += each;
    }
    if (length > cudnn_backward_length && !evaluation) {
        const Shape back = graph(attention_shape(sizes.samples, sizes.longest, sizes.tokens));
        if (number_if_new(stage, Kind::attention_backward, back) > 0) seconds += each;
    }
    return seconds;
}

double MetShapes::meet_rows(std::size_t stage, std::int64_t tokens, std::int64_t width,
                            const NewShapeLine& line) {
    const Shape shape{rows_alike(tokens).largest, lora_columns_alike(width), 0};
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
