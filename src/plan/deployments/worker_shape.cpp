#include "plan/deployments/worker_shape.h"

#include <algorithm>
#include <limits>
#include <set>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/text.h"
#include "plan/deploy/layout_player.h"
#include "plan/deploy/plan_within_reach.h"
#include "plan/predict/predict.h"
#include "plan/sweep/deploy_sweep.h"

namespace loratrain {

namespace {

constexpr std::size_t most_simulated = 4;  ///< queues
constexpr std::size_t most_shapes = 2;     ///< that are simulated
constexpr double hopeless = 1.1;           ///< of the fastest other way: no size gains that
constexpr AssignLimits quickly{0, 0, 0};
constexpr double worth_simulating = 1.15;  ///< of the fastest by estimate, to what is simulated

int ranks_of(const ReplicaJob& replica) {
    return replica.tensor * replica.stages;
}

/// Per adapter a number that adapters of equal load have in common.
std::vector<std::size_t> load_classes(const Job& job, const ModelSpec& model,
                                      std::span<const DatasetInfo> datasets) {
    const TrialClasses trials = trial_classes(job, model, datasets);
    std::vector<std::size_t> classes(job.adapters.size(), 0);
    for (std::size_t c = 0; c < trials.size(); ++c) {
        for (const AdapterId a : trials.members[c]) classes[index(a)] = c;
    }
    return classes;
}

/// Of queues of alike adapters one, those first that take longest by estimate.
std::vector<std::size_t> unlike_queues(const WorkerQueues& queues,
                                       const std::vector<std::size_t>& classes) {
    std::vector<std::size_t> order(queues.queues.size());
    for (std::size_t w = 0; w < order.size(); ++w) order[w] = w;
    std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
        return queues.queue_seconds[a] > queues.queue_seconds[b];
    });
    std::set<std::vector<std::size_t>> known;
    std::erase_if(order, [&](std::size_t w) {
        std::vector<std::size_t> alike;
        for (const AdapterId a : queues.queues[w]) alike.push_back(classes[index(a)]);
        std::sort(alike.begin(), alike.end());
        return !known.insert(std::move(alike)).second;
    });
    return order;
}

ReplicaJob wanted_replica(const Job& job, int ranks) {
    const ParallelJob& parallel = job.parallel;
    ReplicaJob replica;
    replica.stages = parallel.pipeline_stages.value_or(1);
    replica.count = ranks / replica.stages;
    if (!parallel.deployment.empty()) replica = parallel.deployment.front();
    const int each = ranks_of(replica);
    if (replica.count > 0 && each * replica.count == ranks) return replica;
    const bool counted = !parallel.deployment.empty();
    throw InputError(
        cat(job.path, ": parallel.assignment"),
        cat(ranks, ranks == 1 ? " rank" : " ranks", " cannot be split into ",
            std::max(1, replica.count), " workers of ", each),
        cat("start ", counted ? "" : "a multiple of ", counted ? each * replica.count : each,
            " ranks, or change ", counted ? "deployment" : "pipeline_stages"));
}

/// Of the sizes of microbatches that are looked at the fastest says it.
Recompute fastest_recompute(const Job& job, const ModelSpec& model,
                            std::span<const DatasetInfo> datasets, const Cluster& cluster,
                            const ReplicaJob& replica) {
    const TrialClasses trials = expected_trials(job, model, datasets);
    const SweepTask task{job, model, datasets, cluster, trials};
    Recompute recompute = Recompute::automatic;
    double fastest = std::numeric_limits<double>::max();
    for (const SweepReplica& r : SweepShapes(task).replicas(replica.tensor, replica.stages)) {
        const double seconds =
            contiguous_assignment(r, task.rules, task.trials.counts(), replica.count).makespan();
        if (seconds < fastest) recompute = r.recompute;
        fastest = std::min(fastest, seconds);
    }
    return recompute;
}

WorkerShape shape_of(const SweepOption& option) {
    const SweepShape& shape = option.shape;
    return {{shape.tensor, shape.stages, shape.replicas, shape.microbatch_tokens},
            option.recompute};
}

class WorkerSearch {
  public:
    WorkerSearch(const Job& job, const ModelSpec& model, std::span<const DatasetInfo> datasets,
                 const Cluster& cluster, std::optional<double> beside)
        : job_(job), model_(model), datasets_(datasets), cluster_(cluster), beside_(beside) {
        cluster_.costs.reset();
    }

    /// `options`: the fastest first.
    std::optional<WorkersPrediction> run(const std::vector<SweepOption>& options) {
        double fastest = 0.0;
        std::size_t simulated = 0;
        for (const SweepOption& option : options) {
            if (beside_ && option.shape.replicas < 2) continue;
            if (fastest == 0.0) fastest = option.seconds;
            if (option.seconds > worth_simulating * fastest || ++simulated > most_shapes) break;
            look_at(shape_of(option));
        }
        return best_;
    }

  private:
    /// In its microbatches, and in those of its longest queue.
    void look_at(WorkerShape shape) {
        const std::vector<AdapterId> longest = simulate(shape);
        const bool open = !job_.parallel.microbatch_tokens;
        if (longest.empty() || !open || (beside_ && last_ > hopeless * *beside_)) return;
        const double least = std::min(best_->seconds, beside_.value_or(best_->seconds));
        const std::optional<Plan> plan =
            planned(only(longest), sized(shape, std::nullopt), longest_tokens_ / least);
        if (!plan) return;
        const ReplicaPlan& replica = plan->replicas.front();
        if (replica.microbatch_tokens == shape.replica.microbatch_tokens) return;
        shape.replica.microbatch_tokens = replica.microbatch_tokens;
        shape.recompute = replica.recompute;
        simulate(shape);
    }

    /// The longest queue; none where the shape does not fit.
    std::vector<AdapterId> simulate(const WorkerShape& shape) {
        const std::optional<Plan> plan = planned(job_, shape);
        if (!plan) return {};
        const Job job = job_of_worker(job_, shape);
        std::vector<std::int32_t> steps;
        for (const AdapterPlan& adapter : plan->adapters) steps.push_back(adapter.total_steps);
        const WorkerQueues queues =
            queue_for_workers(job, *plan, datasets_, steps, shape.replica.count, {}, quickly);
        const double most =
            best_ ? best_->seconds : std::numeric_limits<double>::infinity();  // to be the best
        const double seconds = workers_seconds(job, *plan, datasets_, queues, {}, most);
        last_ = seconds;
        if (!best_ || seconds < best_->seconds) best_ = {shape, seconds};
        const auto longest = std::ranges::max_element(queues.queue_seconds);
        if (longest == queues.queue_seconds.end()) return {};
        const std::vector<AdapterId>& queue =
            queues.queues[static_cast<std::size_t>(longest - queues.queue_seconds.begin())];
        longest_tokens_ = 0.0;
        for (const AdapterId a : queue) longest_tokens_ += tokens_of(*plan, a);
        return queue;
    }

    double tokens_of(const Plan& plan, AdapterId a) const {
        const AdapterPlan& adapter = plan.adapters[index(a)];
        return static_cast<double>(datasets_[index(job_.adapter(a).dataset)].train_tokens()) *
               adapter.total_steps / adapter.steps_per_epoch;
    }

    static WorkerShape sized(WorkerShape shape, std::optional<std::int64_t> tokens) {
        shape.replica.microbatch_tokens = tokens;
        shape.recompute = Recompute::automatic;
        return shape;
    }

    Job only(const std::vector<AdapterId>& adapters) const {
        Job job = job_;
        job.adapters.clear();
        for (const AdapterId a : adapters) job.adapters.push_back(job_.adapter(a));
        return job;
    }

    /// None where it does not fit, or falls behind `least_speed`, also by a prediction.
    std::optional<Plan> planned(const Job& job, const WorkerShape& shape,
                                double least_speed = 0.0) const {
        Cluster cluster = cluster_;
        cluster.ranks = ranks_of(shape.replica);
        try {
            PlannedJob planned = plan_within_reach(job_of_worker(job, shape), model_, datasets_,
                                                   cluster, least_speed, rounds_predicted);
            if (planned.report.falls_behind) return std::nullopt;
            return std::move(planned.plan);
        } catch (const InputError&) {
            return std::nullopt;
        }
    }

    const Job& job_;
    const ModelSpec& model_;
    std::span<const DatasetInfo> datasets_;
    Cluster cluster_;
    std::optional<double> beside_;
    double last_ = 0.0;            ///< seconds of what was simulated last
    double longest_tokens_ = 0.0;  ///< of its longest queue
    std::optional<WorkersPrediction> best_;
};

}  // namespace

Job job_of_worker(Job job, const WorkerShape& shape, int worker) {
    job.logging.trace = job.logging.trace && worker == 0;
    ParallelJob& parallel = job.parallel;
    if (parallel.assignment != Assignment::plora) parallel.assignment = Assignment::each;
    const ReplicaJob& replica = shape.replica;
    if (replica.microbatch_tokens) parallel.microbatch_tokens = replica.microbatch_tokens;
    if (parallel.recompute == Recompute::automatic) {
        parallel.recompute = shape.recompute;
        parallel.recomputes_least = true;
    }
    parallel.deployment.clear();
    parallel.pipeline_stages.reset();
    if (replica.tensor > 1) {
        parallel.deployment = {{replica.tensor, replica.stages, 1, {}}};
    } else {
        parallel.pipeline_stages = replica.stages;
    }
    return job;
}

double workers_seconds(const Job& job, const Plan& plan, std::span<const DatasetInfo> datasets,
                       const WorkerQueues& queues, const MetShapes& met, double most) {
    if (!queues.packed_jobs.empty()) return queues.seconds;
    const std::vector<std::size_t> classes = load_classes(job, plan.model, datasets);
    double last = 0.0;
    std::size_t simulated = 0;
    for (const std::size_t w : unlike_queues(queues, classes)) {
        if (queues.queues[w].empty() || ++simulated > most_simulated) break;
        const Prediction prediction =
            predict_some(job, plan, datasets, rounds_predicted, queues.queues[w], met);
        last = std::max(last, prediction.seconds);
        if (last > most) break;
    }
    return last;
}

std::optional<WorkersPrediction> fastest_workers(const Job& job, const ModelSpec& model,
                                                 std::span<const DatasetInfo> datasets,
                                                 const Cluster& cluster,
                                                 std::optional<double> beside) {
    const TrialClasses trials = expected_trials(job, model, datasets);
    const SweepTask task{job, model, datasets, cluster, trials};
    SweepShapes shapes(task);
    if (beside && shapes.replicas(1, 1).empty()) return std::nullopt;
    WorkerSearch search(job, model, datasets, cluster, beside);
    return search.run(deploy_sweep(task, shapes, quickly).options);
}

WorkerShape shape_of_workers(const Job& job, const ModelSpec& model,
                             std::span<const DatasetInfo> datasets, const Cluster& cluster) {
    if (job.parallel.assignment == Assignment::automatic) {
        if (const auto found = fastest_workers(job, model, datasets, cluster)) {
            return found->shape;
        }
    }
    WorkerShape shape{wanted_replica(job, cluster.ranks), Recompute::automatic};
    shape.recompute = shape.replica.recompute != Recompute::automatic
                          ? shape.replica.recompute
                          : fastest_recompute(job, model, datasets, cluster, shape.replica);
    return shape;
}

}  // namespace loratrain
