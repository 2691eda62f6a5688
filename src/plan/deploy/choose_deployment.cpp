#include "plan/deploy/choose_deployment.h"

#include <utility>

#include "plan/deploy/search_layout.h"

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
    auto [chosen, trials] = search_layout(anew, fresh, first.candidate);
    return {std::move(chosen), std::move(trials)};
}

}  // namespace loratrain
