#include "plan/schedule/pipeline_time.h"

namespace loratrain {

PipelineTime pipeline_time(const PipelineLoad& load) {
    ListSchedule schedule(load);
    schedule.advance(true, nullptr);
    return {schedule.now(), schedule.busy()};
}

}  // namespace loratrain
