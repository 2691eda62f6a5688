#pragma once

#include <vector>

#include "plan/cost/attention_span.h"
#include "plan/costs.h"
#include "plan/plan.h"

namespace loratrain {

MicrobatchLoad load_of(const Microbatch& microbatch, const AttentionSpan& span);
AdapterLoads loads_of(const Microbatch& microbatch, const AttentionSpan& span);

/// Seconds of a microbatch, a message or a gradient sum, by the costs of a rank.

/// Predicted seconds of a microbatch on a stage.
/// - Device: forward of the stage with the head includes loss and its gradient. Backward includes
/// the
///   second forward of `Recompute::layer` for layers that are not kept; the model's first layer has
///   no gradient of its input.
/// - Host: it runs ahead of the device. The longer of both counts, for forward and backward
///   together; if that is the host, both passes are longer in proportion.
/// - Streamed layers: of S layers through B buffers, S - B are copied per pass beside computation.
///   S - B times layer_traffic is added to the device's time, and link_power makes it longer.
/// - Offloaded activations (plan/memory/offload.h), beside computation: copied to the host in
/// forward
///   (not for evaluations), copied back in backward instead of a second forward; all layers except
///   those in buffers.
struct PassSeconds {
    double forward = 0.0;
    double backward = 0.0;
};
PassSeconds pass_seconds(const CostModel& costs, const StagePlan& stage, const AdapterLoads& loads,
                         Recompute recompute, bool evaluation = false);
/// One of both passes.
double forward_seconds(const CostModel& costs, const StagePlan& stage, const AdapterLoads& loads,
                       bool evaluation = false);
double backward_seconds(const CostModel& costs, const StagePlan& stage, const AdapterLoads& loads,
                        Recompute recompute);
/// Both passes; and the largest value of several stages.
double stage_seconds(const CostModel& costs, const StagePlan& stage, const AdapterLoads& loads,
                     Recompute recompute);
double slowest_seconds(const CostModel& costs, const std::vector<StagePlan>& stages,
                       const AdapterLoads& loads, Recompute recompute);
/// Share of a microbatch's transfers of layers that computation hides. 1: they cost only
/// layer_traffic.
double hidden_share(const CostModel& costs, const StagePlan& stage, const AdapterLoads& loads,
                    Recompute recompute);
/// The same for activations that go to the host and come back.
double hidden_offload_share(const CostModel& costs, const StagePlan& stage,
                            const AdapterLoads& loads, Recompute recompute);
/// The host's seconds for a microbatch's forward and backward.
double host_seconds(const HostCosts& host, const StagePlan& stage, const AdapterLoads& loads);
/// True if the host takes longer than the device.
bool is_held_up(const CostModel& costs, const StagePlan& stage, const AdapterLoads& loads);
/// Share of the stage's layers that backward runs forward again with Recompute::layer.
double recomputed_share(const StagePlan& stage);
/// Seconds of all layers of the stage. `layer`: costs of one layer's forward or backward.
double layers_seconds(const CostLine& layer, const StagePlan& stage, const AdapterLoads& loads);

/// Costs of computation and of the host, multiplied by `factor`.
CostModel scaled(CostModel costs, double factor);
HostCosts scaled(HostCosts host, double factor);

/// Seconds to sum `parameters` gradients over replicas: each rank sends its gradients to the ranks
/// that add them up, and receives the sums.
inline double exchange_seconds(const LinkCost& link, double parameters) {
    constexpr double ways = 2.0;
    return ways * (link.fixed + link.per_byte * sizeof(float) * parameters);
}
/// The same as if all ranks were on one host, for plans, which do not depend on hosts.
inline double exchange_seconds(const CostModel& costs, double parameters) {
    return exchange_seconds(costs.link(true), parameters);
}

}  // namespace loratrain
