#include "plan/deployments/redeploy.h"

#include <algorithm>

#include "base/error.h"
#include "base/text.h"
#include "plan/deploy/make_plan.h"
#include "plan/deployments/find_deployments.h"

namespace loratrain {

namespace {

constexpr double least_share_gained = 0.1;
constexpr double least_costs_gained = 3.0;
constexpr std::int32_t rounds_played = 16;

/// Of a start without its weights, and bytes of weights that a rank reads per second. Estimates.
constexpr double start_seconds_cuda = 30.0;
constexpr double start_seconds_cpu = 1.0;
constexpr double weights_rate = 1e9;

bool can_go_on(const Job& job, const std::vector<ReplicaJob>& deployment, const ModelSpec& model,
               std::span<const DatasetInfo> datasets, const Cluster& cluster) {
    try {
        make_plan(deployed(job, deployment), model, datasets, cluster);
    } catch (const InputError&) {
        return false;
    }
    return true;
}

}  // namespace

bool Redeployment::pays() const {
    const double gain = seconds_now - seconds_then;
    return !deployment.empty() && gain >= least_share_gained * seconds_now &&
           gain >= least_costs_gained * cost;
}

std::string Redeployment::text(const std::vector<ReplicaJob>& now) const {
    std::string text =
        cat("what is left takes about ", human_duration(seconds_now), " in ", deployment_text(now));
    if (!deployment.empty()) {
        text += cat(", ", human_duration(seconds_then), " in ", deployment_text(deployment));
    }
    return cat(text, "; to change takes about ", human_duration(cost));
}

double redeployment_seconds(const Plan& plan) {
    std::uint64_t weights = 0;
    for (const MemoryPlan& memory : plan.memory) weights = std::max(weights, memory.weights);
    const double start = plan.backend == BackendKind::cuda ? start_seconds_cuda : start_seconds_cpu;
    return start + static_cast<double>(weights) / weights_rate;
}

Job rest_of(const Job& job, const std::vector<std::int32_t>& steps_left) {
    Job rest = job;
    rest.adapters.clear();
    for (std::size_t a = 0; a < job.adapters.size(); ++a) {
        if (steps_left[a] == 0) continue;
        rest.adapters.push_back(job.adapters[a]);
        rest.adapters.back().max_steps = steps_left[a];
    }
    return rest;
}

Redeployment judge_deployment(const Job& job, const Plan& plan,
                              std::span<const DatasetInfo> datasets, const Cluster& cluster,
                              const std::vector<std::int32_t>& steps_left) {
    Redeployment result;
    result.cost = redeployment_seconds(plan);
    const Job rest = rest_of(job, steps_left);
    if (rest.adapters.empty()) return result;
    const auto& now = job.parallel.deployment;
    const auto prediction =
        predict_deployment(rest, now, plan.model, datasets, cluster, rounds_played).prediction;
    result.seconds_now = prediction ? prediction->seconds : 0.0;
    if (result.seconds_now < least_costs_gained * result.cost) return result;
    const FoundDeployments found =
        find_deployments(rest, plan.model, datasets, cluster, {rounds_played});
    for (const DeploymentPrediction& entry : found.fastest) {
        if (same_cuts(entry.deployment, now)) return result;
        if (!can_go_on(job, entry.deployment, plan.model, datasets, cluster)) continue;
        result.deployment = entry.deployment;
        result.seconds_then = entry.prediction->seconds;
        return result;
    }
    return result;
}

}  // namespace loratrain
