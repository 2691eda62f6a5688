#include "plan/cost/met_shapes.h"

#include <algorithm>

#include "base/gemm_shape.h"
#include "plan/memory/memory_model.h"

namespace loratrain {

namespace {

/// Of a microbatch, those of these adapters.
std::int64_t computed_tokens(const Microbatch& microbatch, const AdapterSpan& adapters) {
    std::int64_t tokens = 0;
    for (const Segment& segment : microbatch.segments) {
        if (!adapters.contains(segment.adapter)) continue;
        for (const SampleRef& sample : segment.samples) tokens += sample.tokens;
    }
    return tokens;
}

}  // namespace

MeetingStage meeting_stage(std::size_t number, const ReplicaView& view, const StagePlan& stage) {
    return {number,
            stage.has_head ? logits_chunk(view).rows : 0,
            {stage.first_layer_adapters, stage.last_layer_adapters}};
}

bool meets_new_shapes(const HostCosts& host) {
    return host.new_rows.any() || host.new_targets.any();
}

std::int64_t width_of(const Microbatch& microbatch) {
    return microbatch.columns.augmented ? microbatch.columns.width : 0;
}

double MetShapes::meet(const MeetingStage& stage, const HostCosts& host,
                       const Microbatch& microbatch) {
    if (!meets_new_shapes(host)) return 0.0;
    double seconds = 0.0;
    const auto meet_layer = [&](const AdapterSpan& adapters) {
        const std::int64_t tokens = computed_tokens(microbatch, adapters);
        if (tokens == 0) return;
        seconds += meet_rows(stage.number, tokens, width_of(microbatch), host.new_rows);
    };
    meet_layer({});
    for (const AdapterSpan& adapters : stage.shared) {
        if (!adapters.is_all()) meet_layer(adapters);
    }
    std::int64_t targets = 0;
    for (const Segment& segment : microbatch.segments) {
        for (const SampleRef& sample : segment.samples) targets += sample.targets;
    }
    return seconds + meet_targets(stage.number, targets, stage.head_rows, host.new_targets);
}

double MetShapes::meet_rows(std::size_t stage, std::int64_t tokens, std::int64_t width,
                            const NewShapeLine& line) {
    const Shape shape{rows_alike(tokens).largest, lora_columns_alike(width)};
    const std::int64_t nth = number_if_new(stage, Kind::rows, shape);
    return nth > 0 ? line.seconds(nth, static_cast<double>(shape[0])) : 0.0;
}

double MetShapes::meet_targets(std::size_t stage, std::int64_t targets, std::int64_t head_rows,
                               const NewShapeLine& line) {
    double seconds = 0.0;
    for (std::int64_t left = head_rows > 0 ? targets : 0; left > 0; left -= head_rows) {
        const Shape shape{rows_alike(std::min(left, head_rows)).largest, 0};
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
            const MeetingStage meeting = meeting_stage(number++, view, stage);
            double seconds = 0.0;
            for (const Microbatch& microbatch : joint.replicas[r].microbatches) {
                seconds += met.meet(meeting, host, microbatch);
            }
            most = std::max(most, seconds);
        }
    }
    return most;
}

std::int64_t MetShapes::number_if_new(std::size_t stage, Kind kind, const Shape& shape) {
    const auto of_stage = static_cast<std::int64_t>(stage);
    const auto of_kind = static_cast<std::int64_t>(kind);
    const bool is_new = met_.insert({of_stage, of_kind, shape[0], shape[1]}).second;
    return is_new ? ++count_[{of_stage, of_kind}] : 0;
}

}  // namespace loratrain
