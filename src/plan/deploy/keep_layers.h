#pragma once

#include <cstdint>
#include <vector>

#include "config/job.h"
#include "plan/costs.h"
#include "plan/replica_view.h"

namespace loratrain {

/// Which layers keep their activations although layers are recomputed (StagePlan::kept_layers), and
/// which copy them to host memory (StagePlan::offloaded_layers). If the job leaves it open, layers
/// are kept as memory allows. No result depends on either choice.

/// `stages` with what the job says of residency (streamed_layers.h), recomputation and offload. If
/// the job has recomputed_layers, all other layers are kept, otherwise none. With offload: auto no
/// layers are offloaded.
std::vector<StagePlan> as_job_says(std::vector<StagePlan> stages, const Job& job);

/// Whether a stage with this memory fits into plan.bytes_per_rank. On the CPU what goes to the host
/// stays in the rank's memory.
bool fits_rank(const Plan& plan, const MemoryPlan& memory);

/// Whether memory decides how many layers are kept: recompute is auto, or it is layer because auto
/// was resolved to it.
bool keeps_what_fits(const ParallelJob& parallel);

/// Sets the kept and offloaded layers of each stage of `replica`, which recomputes.
/// - If keeps_what_fits(), as many layers are kept as fit beside all else; none if
///   plan.bytes_per_rank is 0.
/// - With offload: auto each stage gets the offloaded layers with which a microbatch takes the
///   least time by `costs`, and as many kept layers as fit beside them. No layers are offloaded if
///   that gains less than 3%, or if no link is known.
///
/// `view`: the replica whose layers are chosen. `usual`: the load of a usual microbatch, scaled to
/// the size of the replica's. `host_bytes`: memory of the host that a rank may take, 0 = not known.
/// `replica` may be the replica of `view`. Returns false, and leaves `replica` unchanged, if the
/// job leaves nothing open.
bool keep_layers(const Job& job, const ReplicaView& view, const CostModel& costs,
                 const MicrobatchLoad& usual, std::uint64_t host_bytes, ReplicaPlan& replica);

}  // namespace loratrain
