#pragma once

#include <cstdint>
#include <vector>

#include "config/job.h"
#include "plan/costs.h"
#include "plan/replica_view.h"

namespace loratrain {

/// Which layers keep their activations where layers are recomputed (StagePlan::kept_layers): those
/// that memory has room for, where the job leaves it open; and of which they go to the host
/// (StagePlan::offloaded_layers). No result depends on either.

/// The stages with what the job says of residency (streamed_layers.h); all but its
/// recomputed_layers keep theirs, or none; of offload: auto none go to the host.
std::vector<StagePlan> as_job_says(std::vector<StagePlan> stages, const Job& job);

/// Whether memory decides: recompute is auto, or layer as auto has come to it.
bool keeps_what_fits(const ParallelJob& parallel);

/// Lets as many layers of each stage of a replica that recomputes, `view`'s, keep their activations
/// as fit beside all else, where memory decides; none where plan.bytes_per_rank is 0. With
/// offload: auto each stage gets the offloaded layers with which a microbatch of its size takes the
/// least time by `costs`, in as much of the host's memory as a rank may take (`host_bytes`, 0 = not
/// known), and as many kept ones as fit beside; none where that gains less than 3%, or no link is
/// known. `usual`: what a microbatch has, of whatever size. `replica` may be `view`'s own. Returns
/// false where the job leaves nothing open, and `replica` is as it was.
bool keep_layers(const Job& job, const ReplicaView& view, const CostModel& costs,
                 const MicrobatchLoad& usual, std::uint64_t host_bytes, ReplicaPlan& replica);

}  // namespace loratrain
