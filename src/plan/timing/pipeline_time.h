#pragma once

#include <cstdint>
#include <optional>

#include "plan/timing/pipeline_bound.h"

namespace loratrain {

struct PipelineTime {
    std::int64_t makespan = 0;  ///< nanoseconds, as `busy`
    std::int64_t busy = 0;      ///< sum over stages
    /// Share of stage-time without work, from the first start to the last end.
    double idle_share(std::int32_t stages) const;
};

/// What the pipeline takes by list scheduling (list_schedule.h), for comparing packings; of a whole
/// load without evaluations. Throws Error when it cannot finish.
PipelineTime pipeline_time(const PipelineLoad& load);

/// The same where the makespan is at most `most`, else none, found out before all is simulated
/// where `bound`, the load's or an empty one, allows it.
std::optional<PipelineTime> pipeline_time_within(const PipelineLoad& load,
                                                 const PipelineBound& bound, std::int64_t most);

}  // namespace loratrain
