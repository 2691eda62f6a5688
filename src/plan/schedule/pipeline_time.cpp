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

}  // namespace loratrain
