#include "session/redeployment.h"

#include <algorithm>

#include "base/log.h"
#include "base/text.h"
#include "io/files.h"
#include "plan/deployments/redeploy.h"

namespace loratrain {

bool may_redeploy(const Job& job) {
    return !job.any_grows() && job.parallel.find_deployment &&
           job.parallel.redeploy == Redeploy::automatic && !job.sweep && !job.parallel.by_workers();
}

RunState state_in(const std::string& checkpoint, const Job& job) {
    const std::string path = checkpoint + "/state.json";
    return run_state_from_json(read_text(path), job, path);
}

void mark_ended(Job& job, const std::vector<AdapterId>& trained) {
    for (std::size_t a = 0; a < job.adapters.size(); ++a) {
        job.adapters[a].ended =
            !trained.empty() &&
            !std::binary_search(trained.begin(), trained.end(), static_cast<AdapterId>(a));
    }
}

std::optional<Job> redeployed(const Job& job, const Plan& plan,
                              std::span<const DatasetInfo> datasets, const Cluster& cluster,
                              const RunState& state) {
    std::vector<std::int32_t> left(plan.adapters.size(), 0);
    const std::vector<AdapterId> unfinished = unfinished_in(state);
    for (const AdapterId a : unfinished) {
        left[index(a)] =
            std::max(0, plan.adapters[index(a)].total_steps - state.adapters[index(a)].steps);
    }
    Job rest = job;
    mark_ended(rest, unfinished);
    const Redeployment other = judge_deployment(rest, plan, datasets, cluster, left);
    const std::string text = other.text(job.parallel.deployment);
    log::info(cat(other.pays() ? "deploying anew: " : "the deployment stays: ", text));
    if (!other.pays()) return std::nullopt;
    rest.parallel.deployment = other.deployment;
    return rest;
}

}  // namespace loratrain
