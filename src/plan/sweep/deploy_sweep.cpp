#include "plan/sweep/deploy_sweep.h"

#include <algorithm>
#include <limits>
#include <tuple>
#include <utility>

#include "base/error.h"
#include "base/text.h"
#include "plan/deploy/make_plan.h"

namespace loratrain {

namespace {

constexpr double worth_refining = 1.05;
constexpr double within_fastest = 1.02;

class SweepDeployer {
  public:
    SweepDeployer(const SweepTask& task, SweepShapes& shapes, const AssignLimits& limits)
        : task_(task), shapes_(shapes), limits_(limits), counts_(task.trials.counts()) {}

    SweepDeployment run() {
        for (const auto& [tensor, stages] : shapes_.cuts()) try_cut(tensor, stages);
        if (candidates_.empty()) {
            // First what keeps the job from training on any replica.
            plan_before_deployment(task_.job, task_.model, task_.datasets, task_.cluster);
            throw InputError(cat(task_.job.path, ": sweep"),
                             cat("no trial fits on ", task_.cluster.ranks, " ranks"),
                             "use more ranks, recompute: layer, or shorter samples");
        }
        const double fastest = fastest_seconds();
        for (Candidate& candidate : candidates_) {
            if (candidate.assignment.makespan() <= worth_refining * fastest) refine(candidate);
        }
        return deployment_of(chosen());
    }

  private:
    struct Candidate {
        SweepReplica replica;
        std::int32_t replicas = 1;
        TrialAssignment assignment;
    };

    /// With microbatches of the size that is fastest.
    void try_cut(std::int32_t tensor, std::int32_t stages) {
        const std::int32_t replicas = task_.cluster.ranks / (tensor * stages);
        Candidate best;
        for (const SweepReplica& replica : shapes_.replicas(tensor, stages)) {
            const SweepBounds bounds = sweep_bounds(replica, task_.rules, counts_, replicas);
            bound_ = std::min(bound_, bounds.any());
            staying_ = std::min(staying_, std::max(bounds.any(), bounds.staying));
            const bool first = best.assignment.seconds.empty();
            if (!first && bounds.any() >= best.assignment.makespan()) continue;
            TrialAssignment assignment =
                contiguous_assignment(replica, task_.rules, counts_, replicas);
            if (first || assignment.makespan() < best.assignment.makespan()) {
                best = {replica, replicas, std::move(assignment)};
            }
        }
        if (!best.assignment.seconds.empty()) candidates_.push_back(std::move(best));
    }

    double fastest_seconds() const {
        double fastest = std::numeric_limits<double>::max();
        for (const Candidate& candidate : candidates_) {
            fastest = std::min(fastest, candidate.assignment.makespan());
        }
        return fastest;
    }

    void refine(Candidate& candidate) const {
        candidate.assignment =
            assign_trials(candidate.replica, task_.rules, counts_, candidate.replicas, limits_);
    }

    const Candidate& chosen() const {
        const double enough = within_fastest * fastest_seconds();
        const auto badness = [&](const Candidate& candidate) {
            const double seconds = candidate.assignment.makespan();
            return std::tuple(seconds > enough, candidate.replica.ranks(), seconds);
        };
        return *std::min_element(
            candidates_.begin(), candidates_.end(),
            [&](const Candidate& a, const Candidate& b) { return badness(a) < badness(b); });
    }

    static SweepShape shape_of(const Candidate& candidate) {
        const SweepReplica& replica = candidate.replica;
        return {replica.tensor, replica.stages, candidate.replicas, replica.microbatch_tokens};
    }

    /// Members of a class go to the replicas in turn, in their order.
    std::vector<std::vector<AdapterId>> queues_of(const TrialAssignment& assignment) const {
        std::vector<std::size_t> next(task_.trials.size(), 0);
        std::vector<std::vector<AdapterId>> queues;
        for (const auto& classes : assignment.queues) {
            std::vector<AdapterId>& queue = queues.emplace_back();
            for (const std::int32_t c : classes) {
                const auto of_class = static_cast<std::size_t>(c);
                queue.push_back(task_.trials.members[of_class][next[of_class]++]);
            }
        }
        return queues;
    }

    SweepDeployment deployment_of(const Candidate& candidate) const {
        SweepDeployment result;
        result.replica = candidate.replica;
        for (const auto& queue : candidate.assignment.queues) {
            result.runs.push_back(simulate_sweep(candidate.replica, task_.rules, queue));
        }
        SweepPlan& plan = result.plan;
        plan.shape = shape_of(candidate);
        plan.queues = queues_of(candidate.assignment);
        plan.queue_seconds = candidate.assignment.seconds;
        plan.seconds = candidate.assignment.makespan();
        plan.bound = bound_;
        plan.staying = staying_;
        double idle = 0.0;
        for (const double seconds : plan.queue_seconds) {
            idle += (plan.seconds - seconds) * candidate.replica.ranks();
        }
        plan.ar = ratio_bound(plan.seconds, plan.shape.ranks(), idle);
        for (const Candidate& other : candidates_) {
            result.options.push_back(
                {shape_of(other), other.assignment.makespan(), other.replica.recompute});
        }
        std::stable_sort(result.options.begin(), result.options.end(),
                         [](const auto& a, const auto& b) { return a.seconds < b.seconds; });
        return result;
    }

    const SweepTask& task_;
    SweepShapes& shapes_;
    AssignLimits limits_;
    std::vector<std::int32_t> counts_;
    std::vector<Candidate> candidates_;  ///< one per cut that fits, by rising ranks
    double bound_ = std::numeric_limits<double>::max();
    double staying_ = std::numeric_limits<double>::max();
};

}  // namespace

SweepDeployment deploy_sweep(const SweepTask& task, const AssignLimits& limits) {
    SweepShapes shapes(task);
    return deploy_sweep(task, shapes, limits);
}

SweepDeployment deploy_sweep(const SweepTask& task, SweepShapes& shapes,
                             const AssignLimits& limits) {
    return SweepDeployer(task, shapes, limits).run();
}

}  // namespace loratrain
