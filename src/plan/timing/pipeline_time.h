#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "plan/timing/list_schedule.h"

namespace loratrain {

/// The time that a pipeline takes for a load, and a lower bound of it.

/// Lower bound of any schedule of a load, in nanoseconds: the larger of two bounds. f(m, s) and
/// b(m, s) are the times of microbatch m on stage s of S; limit(s) microbatches may be in flight
/// there.
///
/// Chains, as if a stage could do a forward and a backward at the same time. Forwards and backwards
/// each come in microbatch order on every stage; the forward of m on s follows that on s - 1, its
/// backward that on s + 1, on the last stage its forward; the forward of m + limit(s) on s does not
/// start before the backward of m there; the first forward of m waits for the backwards that it
/// requires. The longest paths through this from the start of a computation to the end of all are
///   B(m, s) = max(b(m, s) + max(B(m, s - 1), B(m + 1, s)), F(m + limit(s), s)),
///   F(m, s) = f(m, s) + max(F(m, s + 1), F(m + 1, s)), with B(m, S - 1) for F(m, S),
/// where B(m, -1) is the largest F(m', 0) of those m' that require m + 1 backwards.
///
/// Work. At the start of m's first forward, stage s still has f and b of m and of all later
/// microbatches to do, nothing of it before m has come up to s; after its last backward the
/// gradient goes down:
///   f(m, 0) + .. + f(m, s - 1) + sum over m' >= m of f(m', s) + b(m', s)
///   + b(last, s - 1) + .. + b(last, 0).
struct PipelineBound {
    /// Per microbatch: at least this passes from the start of its first forward to the last end.
    std::vector<std::int64_t> from;
    /// The bound for the whole load.
    std::int64_t makespan() const { return from.empty() ? 0 : from.front(); }
};

/// O(microbatches * stages). `load` has no evaluations and begins with its first microbatch.
PipelineBound pipeline_bound(const PipelineLoad& load);

/// The bound by work alone, of times that are computed `repeats` times in a row; no more than that
/// of pipeline_bound(), and many times as quick.
std::int64_t least_work(const PipelineLoad& times, int repeats);

struct PipelineTime {
    std::int64_t makespan = 0;  ///< nanoseconds, as `busy`
    std::int64_t busy = 0;      ///< sum over stages
    /// Share of stage-time without work, from the first start to the last end.
    double idle_share(std::int32_t stages) const;
};

/// Time of a whole load without evaluations by list scheduling (list_schedule.h), to compare
/// packings. Error if it cannot finish.
PipelineTime pipeline_time(const PipelineLoad& load);

/// The same if the makespan is at most `most`, else none. `bound` (of the load, or empty) lets the
/// simulation stop early.
std::optional<PipelineTime> pipeline_time_within(const PipelineLoad& load,
                                                 const PipelineBound& bound, std::int64_t most);

}  // namespace loratrain
