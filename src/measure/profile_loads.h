#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "config/job.h"
#include "measure/start_shapes.h"
#include "plan/plan.h"
#include "plan/replica_view.h"

namespace loratrain {

/// The microbatches that a profile of costs times.

/// Tokens of the longest sample in a profile on a processor; longer ones would take too long.
inline constexpr std::int64_t usual_longest_sample = 4096;

/// Tokens of the longest sample in a profile, if a microbatch can hold it. On a GPU it is the
/// plan's longest: the time of its attention does not follow from shorter samples.
std::int64_t longest_profiled(const Plan& plan);

/// Lengths of samples that have `tokens` in all: `longest`, half of it and so on down to
/// `shortest`, then again from `longest`.
std::vector<std::int64_t> sample_lengths(std::int64_t tokens, std::int64_t longest,
                                         std::int64_t shortest);

/// A microbatch of samples of these lengths, dealt to adapters 0, 1, ... The caller sets its
/// columns.
Microbatch microbatch_of(const std::vector<std::int64_t>& lengths, std::size_t adapters);

/// The microbatches of a profile: the largest load and smaller shares of it, `sizes` in all, the
/// largest first, each once in samples of mixed lengths up to the job's longest and once in short
/// samples. On a processor the short samples of every other size belong to one adapter, all others
/// to all adapters, as in most training: several adapters' factors cost more per token, which the
/// cost line leaves out. `job`: a profile_job().
std::vector<Microbatch> profiled_loads(const Job& job, const ReplicaView& view, bool on_gpu,
                                       std::size_t sizes);
inline constexpr std::size_t most_gpu_sizes = 6;
inline constexpr std::size_t most_processor_sizes = 4;

/// A microbatch of this shape (start_shapes.h), in short samples of the first adapter.
Microbatch start_microbatch(const Job& job, const StartShape& shape);

/// Targets of `rows` rows: every n-th row has a random one, `labels` in all; the others have -100.
std::vector<std::int32_t> random_targets(std::int64_t rows, std::int64_t labels,
                                         std::int64_t vocab_size);

}  // namespace loratrain
