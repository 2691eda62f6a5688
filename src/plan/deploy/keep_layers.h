#pragma once

#include <cstdint>
#include <vector>

#include "config/job.h"
#include "plan/cost/costs.h"
#include "plan/replica_view.h"

namespace loratrain {

/// Which layers keep their activations where layers are recomputed (StagePlan::kept_layers): those
/// that memory has room for, where the job leaves it open; and of which they go to the host
/// (StagePlan::offloaded_layers). No result depends on either.

/// The stages with what the job says of residency (residency.h); all but its recomputed_layers keep
/// theirs, or none; of offload: auto none go to the host.
std::vector<StagePlan> as_job_says(std::vector<StagePlan> stages, const Job& job);

/// Whether memory decides: recompute is auto, or layer as auto has come to it.
bool keeps_what_fits(const ParallelJob& parallel);

/// Lets as many layers of each stage keep their activations as fit beside all else; none where
/// plan.bytes_per_rank is 0.
void keep_what_fits(const Job& job, const ReplicaView& view, ReplicaPlan& replica);

/// Of offload: auto. Gives each stage of a replica that recomputes the offloaded layers with which
/// a microbatch of its size takes the least time by `costs`, in as much of the host's memory as a
/// rank may take (0 = not known), and as many kept ones as fit beside; none where that gains less
/// than 3%, or no link is known. `kept_is_free`: else as many keep theirs as do.
void offload_what_gains(const Job& job, const ReplicaView& view, const CostModel& costs,
                        const MicrobatchLoad& usual, std::uint64_t host_bytes, bool kept_is_free,
                        ReplicaPlan& replica);

/// Tokens of the microbatches of a replica of one stage that recomputes: smaller ones let more
/// layers keep their activations, larger ones make better products. Of `most` and of smaller sizes
/// of at least `longest`, in 128s, those whose tokens take the least time by `costs`; a smaller
/// size has to gain 3%. `usual`: what a microbatch has, of whatever size.
std::int64_t fastest_recomputing(const Job& job, const ReplicaView& view, const CostModel& costs,
                                 const MicrobatchLoad& usual, std::int64_t longest,
                                 std::int64_t most);

}  // namespace loratrain
