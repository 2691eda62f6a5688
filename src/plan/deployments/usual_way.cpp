#include "plan/deployments/usual_way.h"

#include <algorithm>
#include <utility>

#include "base/error.h"
#include "base/text.h"
#include "plan/cost/device.h"
#include "plan/sweep/deploy_sweep.h"

namespace loratrain {

namespace {

/// Of the time of one pipeline, at most, that another way has to take.
constexpr double enough = 1.0 / (1.0 + usual_gain);

/// A way of training, and what it takes of one pipeline's time.
struct Share {
    UsualWay::Kind kind = UsualWay::Kind::pipeline;
    std::vector<ReplicaJob> deployment;
    double of_pipeline = 1.0;
    std::string speed;  ///< "9409 tokens/s beside 8843"
};

std::string speed_text(const Prediction& prediction) {
    return format_fixed(prediction.tokens_per_second(), 0);
}

/// "1.06 x as fast as one pipeline by simulation (9409 tokens/s beside 8843)"
std::string gain_text(const Share& share) {
    return cat(format_fixed(1.0 / share.of_pipeline, 2),
               " x as fast as one pipeline by simulation (", share.speed, ")");
}

class WaySearch {
  public:
    WaySearch(const Job& job, const ModelSpec& model, std::span<const DatasetInfo> datasets,
              const Cluster& cluster)
        : job_(job), model_(model), datasets_(datasets), cluster_(cluster) {}

    UsualWay run() {
        const DeploymentPrediction pipeline =
            predict_deployment(job_, {}, model_, datasets_, cluster_);
        WorthPredicting worth;
        worth.fastest_alone = true;
        if (!pipeline.prediction) return without_pipeline(worth);
        const std::optional<Share> workers = workers_beside_pipeline();
        const double of_workers = workers ? workers->of_pipeline / enough : 1.0;
        worth.least_speed = pipeline.prediction->tokens_per_second() / std::min(enough, of_workers);
        way_.found = find_deployments(job_, model_, datasets_, cluster_, worth);
        std::vector<Share> others;
        if (auto replicas = replicas_beside(*pipeline.prediction)) {
            others.push_back(std::move(*replicas));
        }
        if (workers) others.push_back(*workers);
        take(others);
        if (way_.kind == UsualWay::Kind::pipeline) way_.planned = pipeline.planned;
        if (way_.kind == UsualWay::Kind::replicas) way_.planned = way_.found->fastest[0].planned;
        return std::move(way_);
    }

  private:
    UsualWay without_pipeline(const WorthPredicting& worth) {
        way_.found = find_deployments(job_, model_, datasets_, cluster_, worth);
        if (way_.found->fastest.empty()) return {};
        const DeploymentPrediction& fastest = way_.found->fastest.front();
        way_.kind = UsualWay::Kind::replicas;
        way_.deployment = fastest.deployment;
        way_.planned = fastest.planned;
        way_.text = cat(deployment_text(fastest.deployment), ", ", speed_text(*fastest.prediction),
                        " tokens/s by simulation: one pipeline of all ranks does not fit");
        return std::move(way_);
    }

    std::optional<Share> replicas_beside(const Prediction& pipeline) const {
        if (way_.found->fastest.empty()) return std::nullopt;
        const DeploymentPrediction& fastest = way_.found->fastest.front();
        if (same_cuts(fastest.deployment, {{1, cluster_.ranks, 1}})) return std::nullopt;
        return Share{
            UsualWay::Kind::replicas, fastest.deployment,
            fastest.prediction->seconds / pipeline.seconds,
            cat(speed_text(*fastest.prediction), " tokens/s beside ", speed_text(pipeline))};
    }

    bool may_have_workers() const {
        return job_.parallel.assignment_open && job_.adapters.size() > 1 &&
               !job_.schedule.max_adapters;
    }

    std::optional<Share> workers_beside_pipeline() const {
        if (!may_have_workers()) return std::nullopt;
        const TrialClasses trials = expected_trials(job_, model_, datasets_);
        const SweepTask task{job_, model_, datasets_, cluster_, trials};
        SweepShapes shapes(task);
        if (shapes.replicas(1, 1).empty()) return std::nullopt;
        const AssignLimits quickly{0, 0, 0};
        SweepDeployment deployment;
        try {
            deployment = deploy_sweep(task, shapes, quickly);
        } catch (const InputError&) {
            return std::nullopt;
        }
        const auto pipeline = std::find_if(
            deployment.options.begin(), deployment.options.end(), [&](const SweepOption& option) {
                return option.shape.stages == cluster_.ranks && option.shape.tensor == 1;
            });
        const SweepPlan& plan = deployment.plan;
        if (plan.shape.replicas == 1 || pipeline == deployment.options.end()) return std::nullopt;
        return Share{
            UsualWay::Kind::workers,
            {{plan.shape.tensor, plan.shape.stages, plan.shape.replicas,
              plan.shape.microbatch_tokens}},
            plan.seconds / pipeline->seconds,
            cat(human_duration(plan.seconds), " beside ", human_duration(pipeline->seconds))};
    }

    void take(const std::vector<Share>& others) {
        const Share* taken = nullptr;
        for (const Share& other : others) {
            const double least = taken != nullptr ? taken->of_pipeline : 1.0;
            if (other.of_pipeline <= enough * least) taken = &other;
        }
        if (taken == nullptr) {
            way_.text = "one pipeline: no other way gains 3% by simulation";
            return;
        }
        way_.kind = taken->kind;
        way_.deployment = taken->deployment;
        way_.text = way_.kind == UsualWay::Kind::workers
                        ? cat(taken->deployment.front().count,
                              " workers, parallel.assignment: ", "each, of ",
                              deployment_text(taken->deployment), ", ", gain_text(*taken),
                              "; assignment: joint rules them out")
                        : cat("parallel.deployment: ", deployment_text(taken->deployment), ", ",
                              gain_text(*taken), "; deployment: pipeline keeps to that");
    }

    const Job& job_;
    const ModelSpec& model_;
    std::span<const DatasetInfo> datasets_;
    const Cluster& cluster_;
    UsualWay way_;
};

}  // namespace

bool has_choice(const Job& job, const Cluster& cluster) {
    return job.parallel.deployment_open && cluster.ranks > 1 &&
           cluster.backend == BackendKind::cuda && find_device(device_of(cluster)).has_value() &&
           job.schedule.policy == SchedulePolicy::balanced;
}

bool has_too_many_ranks(const Job& job, const ModelSpec& model, const Cluster& cluster) {
    return job.parallel.deployment_open && cluster.ranks > model.layers;
}

UsualWay usual_way(const Job& job, const ModelSpec& model, std::span<const DatasetInfo> datasets,
                   const Cluster& cluster) {
    UsualWay fallback;
    if (has_too_many_ranks(job, model, cluster)) fallback.kind = UsualWay::Kind::replicas;
    if (!has_choice(job, cluster)) return fallback;
    try {
        UsualWay way = WaySearch(job, model, datasets, cluster).run();
        return way.text.empty() ? fallback : way;
    } catch (const InputError&) {
        return fallback;  // planning says what is wrong with the job
    }
}

Job settled(Job job, const UsualWay& way) {
    ParallelJob& parallel = job.parallel;
    parallel.deployment_open = parallel.assignment_open = false;
    parallel.settled = way.text;
    parallel.deployment = way.deployment;
    parallel.find_deployment = way.kind == UsualWay::Kind::replicas;
    if (way.kind == UsualWay::Kind::workers) {
        parallel.assignment = way.deployment.empty() ? Assignment::automatic : Assignment::each;
    }
    return job;
}

}  // namespace loratrain
