#include "plan/deploy/plan_replica.h"

#include <algorithm>
#include <utility>

#include "plan/deploy/search_layout.h"
#include "plan/memory/fit_memory.h"
#include "plan/replica_view.h"

namespace loratrain {

namespace {

/// The job with the sizes of the former run where it leaves them open.
Job sized_as(Job job, const ReplicaPlan& former) {
    ParallelJob& parallel = job.parallel;
    if (!parallel.microbatch_tokens) parallel.microbatch_tokens = former.microbatch_tokens;
    if (parallel.recompute == Recompute::automatic) parallel.recompute = former.recompute;
    return job;
}

/// In the sizes of the former run; fits only where they do.
Attempt as_formerly(const DeploymentInputs& in, const Candidates& candidates) {
    if (in.former == nullptr) return {};
    const Job sized = sized_as(in.job, *in.former);
    const auto& tokens = sized.parallel.microbatch_tokens;
    if (!tokens || *tokens < in.work.longest_sample) return {};
    Attempt attempt = candidates.by_cost(sized);
    return attempt.fits ? attempt : candidates.in_former_stages(sized);
}

}  // namespace

LayerSplit layer_split(const DeploymentInputs& inputs) {
    return [candidates = Candidates(inputs), &inputs](std::int32_t stages, Recompute recompute) {
        return candidates.split(stages, inputs.work.usual.total, recompute);
    };
}

Deployment choose_deployment(const DeploymentInputs& inputs) {
    const Candidates candidates(inputs);
    const Attempt former = as_formerly(inputs, candidates);
    if (former.fits) return {laid_out(inputs, candidates, former.candidate), {}};
    DeploymentInputs anew = inputs;
    anew.former = nullptr;
    const Candidates fresh(anew);
    const Attempt first = fresh.admitted(inputs.job);
    if (!first.fits || !inputs.searches) return {first.candidate, {}};
    auto [chosen, trials, falls_behind] = search_layout(anew, fresh, first.candidate);
    return {std::move(chosen), std::move(trials), falls_behind};
}

ReplicaPlanner::ReplicaPlanner(const ReplicaTask& task)
    : task_(task), job_(task.job), constants_(task.constants), work_(task.work) {
    constants_.costs = task.costs.best_known;
    if (task.shape.microbatch_tokens) {
        job_.parallel.microbatch_tokens = task.shape.microbatch_tokens;
    }
    if (task.shape.recompute != Recompute::automatic) {
        job_.parallel.recompute = task.shape.recompute;
        job_.parallel.recomputed_layers = task.shape.recomputed_layers;
        job_.parallel.recomputes_least = task.shape.recomputes_least;
    }
    if (task.one_of_several) limit_samples();
    deployment_ = choose_deployment(inputs());
    if (!task.one_of_several || job_.parallel.microbatch_tokens) return;
    const std::int64_t most = most_that_fits();
    if (most == 0 || most >= work_.longest_sample) return;
    job_.parallel.microbatch_tokens = most;
    limit_samples();
    deployment_ = choose_deployment(inputs());
}

DeploymentInputs ReplicaPlanner::inputs() const {
    const std::span<const DatasetInfo> datasets =
        shortened_.empty() ? task_.datasets : std::span<const DatasetInfo>(shortened_);
    return {job_,
            constants_,
            datasets,
            work_,
            task_.costs.built_in,
            task_.former,
            task_.shape.tensor,
            task_.shape.stages,
            task_.width.pad,
            task_.width.saved,
            task_.host_bytes,
            task_.searches,
            task_.least_speed};
}

/// To what a microbatch of the given size holds.
void ReplicaPlanner::limit_samples() {
    const auto& limit = job_.parallel.microbatch_tokens;
    if (!limit || *limit >= work_.longest_sample) return;
    work_.longest_sample = *limit;
    shortened_.assign(task_.datasets.begin(), task_.datasets.end());
    std::vector<std::int64_t> together(shortened_.size(), 1);
    for (const AdapterJob& adapter : job_.adapters) {
        const std::size_t d = index(adapter.dataset);
        together[d] = std::max(together[d], packed_samples(adapter, shortened_[d].group_samples));
    }
    for (std::size_t d = 0; d < shortened_.size(); ++d) {
        DatasetInfo& dataset = shortened_[d];
        const std::int64_t most = std::max<std::int64_t>(1, *limit / together[d]);
        for (SampleInfo& sample : dataset.train) {
            sample.tokens = static_cast<std::int32_t>(std::min<std::int64_t>(sample.tokens, most));
            sample.targets = std::min(sample.targets, sample.tokens);
        }
    }
}

/// Tokens of the largest microbatch where the one that was chosen does not fit; 0 = it does, or
/// none.
std::int64_t ReplicaPlanner::most_that_fits() const {
    const Plan plan = plan_with(constants_, candidate());
    const ReplicaView view = only_replica(plan);
    const ReplicaPlan& replica = view.replica;
    if (fits_memory(job_, view, replica.microbatch_tokens, replica.recompute)) return 0;
    const FittingTokens fitting = fitting_tokens(job_, view, 1);
    return std::max(may_use(job_, Recompute::none) ? fitting.none : 0,
                    may_use(job_, Recompute::layer) ? fitting.layer : 0);
}

LayerSplit ReplicaPlanner::split() const {
    return [this](std::int32_t stages, Recompute recompute) {
        return layer_split(inputs())(stages, recompute);
    };
}

}  // namespace loratrain
