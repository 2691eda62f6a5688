#include "plan/deployments/usual_way.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "base/error.h"
#include "base/text.h"
#include "plan/cost/device.h"
#include "plan/deploy/search_layout.h"
#include "plan/deployments/worker_shape.h"

namespace loratrain {

namespace {

/// On up to so many the pipeline is predicted first, and others that fall behind it are given up;
/// on more it seldom comes near them, and its layouts take the longest to search.
constexpr int few_ranks = 8;

/// A way of training, and what it takes of one pipeline's time.
struct Share {
    UsualWay::Kind kind = UsualWay::Kind::pipeline;
    std::vector<ReplicaJob> deployment;
    double of_pipeline = 1.0;
    double speed = 0.0;              ///< tokens/s
    double least_gain = usual_gain;  ///< over the pipeline
    std::optional<PlannedJob> planned = {};
    std::optional<Prediction> prediction = {};
};

std::string speed_text(double tokens_per_second) {
    return cat(format_fixed(tokens_per_second, 0), " tokens/s");
}

class WaySearch {
  public:
    WaySearch(const Job& job, const ModelSpec& model, std::span<const DatasetInfo> datasets,
              const Cluster& cluster)
        : job_(job), model_(model), datasets_(datasets), cluster_(cluster) {}

    UsualWay run() {
        const bool comes_first = cluster_.ranks <= few_ranks;
        DeploymentPrediction pipeline;
        if (comes_first) pipeline = one_pipeline();
        WorthPredicting worth;
        worth.fastest_alone = true;
        worth.one_pipeline = comes_first && !pipeline.prediction;
        if (pipeline.prediction) worth.least_speed = (1.0 + other_gain) * speed_of(pipeline);
        way_.found = find_deployments(job_, model_, datasets_, cluster_, worth);
        if (!comes_first) pipeline = pipeline_beside_found();
        const bool falls_behind = pipeline.planned.report.falls_behind;
        if (!pipeline.prediction && !falls_behind) return replicas_alone();
        const Prediction& known =
            falls_behind ? *way_.found->fastest.front().prediction : *pipeline.prediction;
        pipeline_seconds_ = falls_behind ? known.seconds / within_reach : known.seconds;
        if (!falls_behind) pipeline_speed_ = speed_of(pipeline);
        std::vector<Share> others = replicas_beside();
        const double fastest = others.empty() ? 1.0 : others.front().of_pipeline;
        if (auto workers = workers_beside(known.tokens, fastest)) {
            others.push_back(std::move(*workers));
        }
        way_.planned = std::move(pipeline.planned);
        way_.prediction = std::move(pipeline.prediction);
        take(others);
        return std::move(way_);
    }

  private:
    static double speed_of(const DeploymentPrediction& one) {
        return one.prediction->tokens_per_second();
    }

    DeploymentPrediction one_pipeline(double least_speed = 0.0) const {
        return predict_deployment(job_, {}, model_, datasets_, cluster_, WorthPredicting{}.rounds,
                                  least_speed);
    }

    DeploymentPrediction pipeline_beside_found() const {
        const std::vector<DeploymentPrediction>& found = way_.found->fastest;
        return one_pipeline(found.empty() ? 0.0 : speed_of(found.front()));
    }

    UsualWay replicas_alone() {
        if (way_.found->fastest.empty()) return {};
        const DeploymentPrediction& fastest = way_.found->fastest.front();
        way_.kind = UsualWay::Kind::replicas;
        way_.deployment = fastest.deployment;
        way_.planned = fastest.planned;
        way_.prediction = fastest.prediction;
        way_.text = cat(deployment_text(fastest.deployment), ", ", speed_text(speed_of(fastest)),
                        " by simulation: one pipeline of all ranks does not fit");
        return std::move(way_);
    }

    static bool is_one_replica(const std::vector<ReplicaJob>& deployment) {
        return deployment.size() == 1 && deployment.front().count == 1;
    }

    /// The fastest first. A pipeline of all ranks may be among them, in sizes of its own.
    std::vector<Share> replicas_beside() const {
        std::vector<Share> shares;
        for (const DeploymentPrediction& found : way_.found->fastest) {
            shares.push_back({UsualWay::Kind::replicas, found.deployment,
                              found.prediction->seconds / pipeline_seconds_, speed_of(found),
                              is_one_replica(found.deployment) ? other_gain : usual_gain,
                              found.planned, found.prediction});
        }
        return shares;
    }

    bool may_have_workers() const {
        return job_.parallel.assignment_open && job_.adapters.size() > 1 &&
               !job_.schedule.max_adapters && !any_grow(datasets_);
    }

    /// `fastest`: what another way takes of the pipeline's time.
    std::optional<Share> workers_beside(std::int64_t tokens, double fastest) const {
        if (!may_have_workers()) return std::nullopt;
        std::optional<WorkersPrediction> workers;
        try {
            workers =
                fastest_workers(job_, model_, datasets_, cluster_, fastest * pipeline_seconds_);
        } catch (const InputError&) {
            return std::nullopt;
        }
        if (!workers) return std::nullopt;
        ReplicaJob replica = workers->shape.replica;
        replica.recompute = workers->shape.recompute;
        return Share{UsualWay::Kind::workers,
                     {replica},
                     workers->seconds / pipeline_seconds_,
                     static_cast<double>(tokens) / workers->seconds,
                     other_gain};
    }

    /// "1.06 x as fast as one pipeline by simulation (9409 tokens/s beside 8843)". Of a pipeline
    /// that was given up early nobody knows how fast it would have been at last.
    std::string gain_text(const Share& share) const {
        if (!pipeline_speed_) {
            return cat(speed_text(share.speed),
                       " by simulation, which one pipeline does not come near");
        }
        return cat(format_fixed(1.0 / share.of_pipeline, 2),
                   " x as fast as one pipeline by simulation (", speed_text(share.speed),
                   " beside ", format_fixed(*pipeline_speed_, 0), ")");
    }

    /// The fastest of those that gain enough.
    void take(const std::vector<Share>& others) {
        const Share* taken = nullptr;
        for (const Share& other : others) {
            if ((1.0 + other.least_gain) * other.of_pipeline > 1.0) continue;
            if (taken == nullptr || other.of_pipeline < taken->of_pipeline) taken = &other;
        }
        if (taken == nullptr) {
            way_.text = "one pipeline: no other way gains enough by simulation";
            return;
        }
        way_.kind = taken->kind;
        way_.deployment = taken->deployment;
        way_.planned = taken->planned;
        way_.prediction = taken->prediction;
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
    double pipeline_seconds_ = 0.0;         ///< at least, where it falls behind
    std::optional<double> pipeline_speed_;  ///< tokens/s, if it was searched to the end
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
