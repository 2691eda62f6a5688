#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "config/job.h"
#include "measure/start_shapes.h"
#include "plan/plan.h"
#include "plan/replica_view.h"

namespace loratrain {

/// Tokens of the longest sample that is profiled on a processor, which takes long for it.
inline constexpr std::int64_t usual_longest_sample = 4096;

/// Tokens of the longest sample that a profile has, where a microbatch holds it: on a GPU the
/// plan's, as what attention takes of it cannot be derived from shorter ones.
std::int64_t longest_profiled(const Plan& plan);

/// So many tokens in samples as long as `longest`, half as long and so on down to `shortest`, and
/// again.
std::vector<std::int64_t> sample_lengths(std::int64_t tokens, std::int64_t longest,
                                         std::int64_t shortest);

/// Samples of those lengths, shared out among the adapters 0, 1, ...; its columns are the caller's.
Microbatch microbatch_of(const std::vector<std::int64_t>& lengths, std::size_t adapters);

/// Microbatches of the first `sizes` shares of the largest load, the largest first, each in samples
/// of mixed lengths up to the job's longest and in short ones. On a processor the short ones of
/// every other size are of one adapter, the others of all, as most are that train: their factors
/// cost more for every token, which the form leaves out. `job`: a profile_job().
std::vector<Microbatch> profiled_loads(const Job& job, const ReplicaView& view, bool on_gpu,
                                       std::size_t sizes);
inline constexpr std::size_t most_gpu_sizes = 6;
inline constexpr std::size_t most_processor_sizes = 4;

/// One of the start's shapes (start_shapes.h), in short samples of the first adapter.
Microbatch start_microbatch(const Job& job, const StartShape& shape);

/// Of so many rows every n-th has a target, `labels` in all; -100 = none.
std::vector<std::int32_t> random_targets(std::int64_t rows, std::int64_t labels,
                                         std::int64_t vocab_size);

}  // namespace loratrain
