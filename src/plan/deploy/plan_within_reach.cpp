#include "plan/deploy/plan_within_reach.h"

#include "plan/deploy/layout_player.h"
#include "plan/deploy/search_layout.h"

namespace loratrain {

PlannedJob plan_within_reach(const Job& job, const ModelSpec& model,
                             std::span<const DatasetInfo> datasets, const Cluster& cluster,
                             double least_speed, std::int32_t rounds) {
    PlannedJob planned = plan_job(job, model, datasets, cluster, nullptr, least_speed);
    if (!planned.report.falls_behind) return planned;
    const double wanted = within_reach * least_speed;
    if (whole_job_speed(job, planned.plan, datasets, {wanted}, rounds) < wanted) return planned;
    return plan_job(job, model, datasets, cluster);
}

}  // namespace loratrain
