#pragma once

#include <cstdint>
#include <vector>

#include "config/model_spec.h"
#include "plan/costs.h"
#include "plan/plan.h"

namespace loratrain {

/// Work of microbatches, and seconds of microbatches, messages and gradient sums by a rank's costs.

/// Work of causal attention for a sample, averaged over the layers of a model, some of which may
/// have another mixer.
class AttentionSpan {
  public:
    /// For a model with attention in all layers and without sliding windows.
    AttentionSpan() = default;
    explicit AttentionSpan(const ModelSpec& model);

    /// About twice the number of token pairs that see each other: tokens² without a sliding window,
    /// m (2 tokens - m) with one, m = min(sliding_window, tokens).
    double squares(std::int64_t tokens) const;

  private:
    struct Layers {
        std::int64_t sliding_window = 0;
        double share = 0.0;  ///< of all layers
    };
    std::vector<Layers> layers_;  ///< empty: all layers see all
};

MicrobatchLoad load_of(const Microbatch& microbatch, const AttentionSpan& span);
AdapterLoads loads_of(const Microbatch& microbatch, const AttentionSpan& span);

/// Predicted seconds of a microbatch on a stage.
/// - Device: on the stage with the head, forward includes the loss and its gradient. With
///   `Recompute::layer` backward includes the second forward of layers that are not kept. The
///   model's first layer has no gradient of its input.
/// - Host: it runs ahead of the device. The longer of both counts, for forward and backward
///   together; if that is the host, both passes are longer in proportion.
/// - Streamed layers: of S layers through B buffers, S - B are copied per pass beside computation.
///   S - B times layer_traffic is added to the device's time, and link_power makes it longer.
/// - Offloaded activations (plan/memory/offload.h): copied beside computation, to the host in
///   forward (not for evaluations), and back in backward instead of a second forward. Layers in
///   buffers are not copied.
struct PassSeconds {
    double forward = 0.0;
    double backward = 0.0;
};
PassSeconds pass_seconds(const CostModel& costs, const StagePlan& stage, const AdapterLoads& loads,
                         Recompute recompute, bool evaluation = false);
/// The same for one of the two passes.
double forward_seconds(const CostModel& costs, const StagePlan& stage, const AdapterLoads& loads,
                       bool evaluation = false);
double backward_seconds(const CostModel& costs, const StagePlan& stage, const AdapterLoads& loads,
                        Recompute recompute);
/// Forward and backward together; and the largest value of several stages.
double stage_seconds(const CostModel& costs, const StagePlan& stage, const AdapterLoads& loads,
                     Recompute recompute);
double slowest_seconds(const CostModel& costs, const std::vector<StagePlan>& stages,
                       const AdapterLoads& loads, Recompute recompute);
/// Share of a microbatch's transfers of streamed layers that computation hides. 1: transfers cost
/// only layer_traffic.
double hidden_share(const CostModel& costs, const StagePlan& stage, const AdapterLoads& loads,
                    Recompute recompute);
/// The same for transfers of offloaded activations, to the host and back.
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

/// Useful work per trained token. weights: 4 FLOP per weight in a matrix product (forward and input
/// gradient; a frozen base has no weight gradient). attention: 3 x 2 L Q D s, causal, over samples
/// of s tokens (of several lengths: sum of squares over sum); of a gated delta net 3 x 6 Hv Dk Dv
/// (three products of its state with a vector), however long samples are. LoRA's own work is not
/// counted, nor is anything that is computed twice.
struct TokenFlop {
    double weights = 0.0;
    double attention = 0.0;
    double total() const { return weights + attention; }
};
TokenFlop token_flop(const ModelSpec& model, double sample_tokens);

}  // namespace loratrain
