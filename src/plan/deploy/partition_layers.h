#pragma once

#include <cstdint>
#include <vector>

#include "plan/replica_view.h"

namespace loratrain {

/// Which stage of a pipeline has which layers.

/// Cuts the layers into `stages` contiguous ranges such that the slowest stage is as fast as
/// possible: 1 <= stages <= layers, at least one layer each, stage i on rank i. The time of a stage
/// is forward and backward of a microbatch of `load`, in seconds, including the head. Among equally
/// fast cuts the most even one is taken, with surplus layers on the earlier stages.
std::vector<StagePlan> partition_layers(std::int32_t layers, std::int32_t stages,
                                        const CostModel& costs, const MicrobatchLoad& load,
                                        Recompute recompute = Recompute::none);

/// Share of time that the slowest stage has to save for layers to be shared.
inline constexpr double sharing_gain = 0.02;

/// Evens out stages of whole layers: two neighbouring stages share the layer between them. One of
/// them computes it for the adapters below a number, the other for the remaining adapters. The
/// slowest stage takes the least time of a microbatch of `loads`, with its parts per adapter. Rows
/// of a microbatch are in the order of adapters, so each stage computes one range. Base weights are
/// frozen, so a second copy needs no synchronisation; the factors of an adapter stay on one rank.
///
/// `whole`: the stages with whole layers (partition_layers()), returned unchanged if sharing gains
/// less than sharing_gain. Every stage keeps a layer that it does not share.
std::vector<StagePlan> share_layers(const std::vector<StagePlan>& whole, const CostModel& costs,
                                    const AdapterLoads& loads, Recompute recompute);

/// Share of time that another split has to save to replace the usual one.
inline constexpr double split_gain = 0.05;

/// The layers of every stage. They are split by `usual` costs (partition_layers()) and, if `loads`
/// has parts per adapter, shared by neighbours (share_layers()). Another split is taken only if by
/// `measured` costs its slowest stage takes over 5% less time. Smaller differences are noise of the
/// measurement, and runs should get the same layout.
std::vector<StagePlan> choose_split(std::int32_t layers, std::int32_t stages,
                                    const CostModel& usual, const CostModel& measured,
                                    const AdapterLoads& loads, Recompute recompute);

/// The plan's stages of whole layers, changed to fit into memory with these microbatches and this
/// recomputation. A rank that needs more than plan.bytes_per_rank gives layers to other stages: no
/// more layers than necessary, to the stages that have been given fewest. Empty if no split over as
/// many stages fits.
std::vector<StagePlan> fit_layers(const Job& job, const ReplicaView& view, std::int64_t tokens,
                                  Recompute recompute);

}  // namespace loratrain
