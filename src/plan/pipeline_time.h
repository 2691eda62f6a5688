#pragma once

#include <cstdint>
#include <vector>

namespace loratrain {

/// What one pipeline has to compute, in microbatch order. Times in nanoseconds.
struct PipelineLoad {
    std::int32_t stages = 1;
    std::int32_t max_in_flight = 1;      ///< at the first stage; stage s: one less each, at least 1
    std::vector<std::int64_t> forward;   ///< [microbatch * stages + stage]
    std::vector<std::int64_t> backward;  ///< likewise
    /// Per microbatch: backwards that the first stage must have finished before its forward.
    std::vector<std::int32_t> required;
};

struct PipelineTime {
    std::int64_t makespan = 0;
    std::int64_t busy = 0;  ///< sum over stages
    /// Share of stage-time without work, from the first start to the last end.
    double idle_share(std::int32_t stages) const;
};

/// Simulates the pipeline by the rules of compute_order.h (list scheduling, LoRAPP order, messages
/// free): fast, for comparing packings. Throws Error when the load cannot finish.
PipelineTime pipeline_time(const PipelineLoad& load);

}  // namespace loratrain
