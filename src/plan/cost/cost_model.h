#pragma once

#include <vector>

#include "plan/cost/attention_span.h"
#include "plan/costs.h"
#include "plan/plan.h"

namespace loratrain {

MicrobatchLoad load_of(const Microbatch& microbatch, const AttentionSpan& span);
AdapterLoads loads_of(const Microbatch& microbatch, const AttentionSpan& span);

/// Seconds of a stage's stream; forward of the stage with the head includes loss and its gradient,
/// backward includes the second forward of `Recompute::layer`, of layers that are not kept, and in
/// the model's first layer no gradient of its input. The host runs ahead: a microbatch takes the
/// longer of what the device computes and of what the host takes to queue it, forward and backward
/// together. Where that is the host's, both are longer in proportion. Layers that stream come
/// beside that: where S of a stage's do through B buffers, S - B come in a pass in turn, at the
/// ends of which something else than a transfer is waited for, and S - B times layer_traffic is
/// added to what the device computes, which link_power makes longer. Beside it come, too,
/// activations that layers have in host memory (plan/memory/offload.h): in forward they go, but not
/// of an evaluation, which has no backward; in backward they come instead of being computed again;
/// of all layers but those that are in buffers.
struct PassSeconds {
    double forward = 0.0;
    double backward = 0.0;
};
PassSeconds pass_seconds(const CostModel& costs, const StagePlan& stage, const AdapterLoads& loads,
                         Recompute recompute, bool evaluation = false);
/// One of the two.
double forward_seconds(const CostModel& costs, const StagePlan& stage, const AdapterLoads& loads,
                       bool evaluation = false);
double backward_seconds(const CostModel& costs, const StagePlan& stage, const AdapterLoads& loads,
                        Recompute recompute);
/// Both, and the largest of several stages.
double stage_seconds(const CostModel& costs, const StagePlan& stage, const AdapterLoads& loads,
                     Recompute recompute);
double slowest_seconds(const CostModel& costs, const std::vector<StagePlan>& stages,
                       const AdapterLoads& loads, Recompute recompute);
/// What computation hides of the transfers of a microbatch's forward and backward: 1 where it takes
/// no longer than for what they take of the memory's rate.
double hidden_share(const CostModel& costs, const StagePlan& stage, const AdapterLoads& loads,
                    Recompute recompute);
/// The same of activations that go to the host and come back.
double hidden_offload_share(const CostModel& costs, const StagePlan& stage,
                            const AdapterLoads& loads, Recompute recompute);
/// What the host takes for a microbatch's forward and backward.
double host_seconds(const HostCosts& host, const StagePlan& stage, const AdapterLoads& loads);
/// Whether that is longer than what the device computes.
bool is_held_up(const CostModel& costs, const StagePlan& stage, const AdapterLoads& loads);
/// What the stage's layers take of either, with `layer` the costs of one.
double layers_seconds(const CostLine& layer, const StagePlan& stage, const AdapterLoads& loads);

/// Costs of computation, and what the host takes, `factor` times as high.
CostModel scaled(CostModel costs, double factor);
HostCosts scaled(HostCosts host, double factor);

/// Seconds in which ranks sum so many gradients over replicas: each sends its own to the ranks that
/// add them up, and receives the sums.
inline double exchange_seconds(const LinkCost& link, double parameters) {
    constexpr double ways = 2.0;
    return ways * (link.fixed + link.per_byte * sizeof(float) * parameters);
}
/// As if all were on one host: what plans are made with, which do not depend on hosts.
inline double exchange_seconds(const CostModel& costs, double parameters) {
    return exchange_seconds(costs.link(true), parameters);
}

}  // namespace loratrain
