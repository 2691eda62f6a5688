#include "plan/schedule/pipeline_time.h"

namespace loratrain {

double PipelineTime::idle_share(std::int32_t stages) const {
    if (makespan == 0) return 0.0;
    return 1.0 - static_cast<double>(busy) / (static_cast<double>(makespan) * stages);
}

PipelineTime pipeline_time(const PipelineLoad& load) {
    ListSchedule schedule(load);
    schedule.advance(true, nullptr);
    return {schedule.now(), schedule.busy()};
}

std::optional<PipelineTime> pipeline_time_within(const PipelineLoad& load,
                                                 const PipelineBound& bound, std::int64_t most) {
    if (bound.makespan() > most) return std::nullopt;
    ListSchedule schedule(load);
    if (!schedule.finish_within(bound.from, most)) return std::nullopt;
    return PipelineTime{schedule.now(), schedule.busy()};
}

}  // namespace loratrain
