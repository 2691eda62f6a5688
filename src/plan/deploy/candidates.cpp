#include "plan/deploy/candidates.h"

#include <algorithm>

#include "base/arithmetic.h"
#include "plan/deploy/keep_layers.h"
#include "plan/deploy/partition_layers.h"
#include "plan/memory/fit_memory.h"
#include "plan/replica_view.h"
#include "plan/schedule/admission_rules.h"

namespace loratrain {

namespace {

/// Of the wanted microbatch, below which fewer adapters at once are the better choice.
constexpr std::int64_t crowded_share = 8;

}  // namespace

Plan plan_with(const Plan& constants, const Candidate& candidate) {
    Plan plan = constants;
    plan.replicas = {candidate.replica};
    plan.first_admitted = candidate.first_admitted;
    return plan;
}

Candidates::Candidates(const DeploymentInputs& inputs)
    : in_(inputs),
      job_(inputs.job),
      order_(admission_order(job_, std::vector<AdapterClaim>(job_.adapters.size()))) {
    const ReplicaPlan* former = inputs.former;
    if (former != nullptr && former->tensor == in_.tensor &&
        std::ssize(former->stages) == in_.stages) {
        alike_ = former;
    }
}

Attempt Candidates::admitted(const Job& sizes) const {
    Attempt attempt = by_cost(sizes);
    for (const Recompute recompute : {Recompute::layer, Recompute::none}) {
        if (attempt.fits || !may_use(sizes, recompute)) continue;
        attempt =
            admit_most(sizes, [&](const Adapters& a) { return by_memory(sizes, recompute, a); });
        attempt.is_full = false;
    }
    return attempt;
}

Attempt Candidates::by_cost(const Job& sizes) const {
    return admit_most(sizes, [&](const Adapters& a) { return whole_layers(sizes, a); });
}

bool Candidates::hold_all(const Job& sizes) const {
    const Adapters all = first_of_order(std::min(order_.size(), most_admitted(job_)));
    return fits(whole_layers(sizes, all)) || fits(by_memory(sizes, sizes.parallel.recompute, all));
}

Attempt Candidates::in_former_stages(const Job& sizes) const {
    if (alike_ == nullptr) return {};
    const std::vector<StagePlan> stages = as_job_says(alike_->stages, job_);
    return admit_most(sizes, [&](const Adapters& a) { return sized(sizes, of_stages(stages, a)); });
}

/// With some adapters waiting, which ones load a stage would change as they end.
Candidate Candidates::with_shared_layers(const Candidate& whole) const {
    Candidate other = whole;
    if (alike_ != nullptr) {
        other.replica.stages = as_job_says(alike_->stages, job_);
        if (fits(other)) return other;
    }
    if (whole.first_admitted.size() < job_.adapters.size()) return whole;
    other.replica.stages = shared_split(whole.replica.recompute);
    return fits(other) ? other : whole;
}

Candidate Candidates::completed(Candidate candidate) const {
    const Plan plan = plan_with(in_.constants, candidate);
    keep_layers(job_, only_replica(plan), in_.built_in, in_.work.usual.total, in_.host_bytes,
                candidate.replica);
    return candidate;
}

bool Candidates::fits(const Candidate& candidate, std::uint64_t parts) const {
    Plan plan = plan_with(in_.constants, candidate);
    plan.bytes_per_rank /= parts;
    return fits_memory(job_, only_replica(plan), candidate.replica.microbatch_tokens,
                       candidate.replica.recompute);
}

/// On the first ranks: which hosts lanes are on counts.
std::vector<StagePlan> Candidates::split(std::int32_t stages, const AdapterLoads& loads,
                                         Recompute recompute) const {
    std::vector<StagePlan> split =
        as_job_says(choose_split(static_cast<std::int32_t>(in_.constants.model.layers), stages,
                                 in_.built_in, in_.constants.costs, loads, recompute),
                    job_);
    for (StagePlan& stage : split) stage.rank *= in_.tensor;
    return split;
}

/// Of whole layers.
std::vector<StagePlan> Candidates::split_for(const Job& sizes, Recompute recompute) const {
    const MicrobatchLoad& usual = in_.work.usual.total;
    const std::int64_t tokens = sizes.parallel.microbatch_tokens.value_or(usual.tokens);
    const auto [known, fresh] = splits_.try_emplace({tokens, recompute});
    if (fresh) known->second = split(in_.stages, scaled_to(usual, tokens), recompute);
    return known->second;
}

const std::vector<StagePlan>& Candidates::shared_split(Recompute recompute) const {
    const auto [known, fresh] = shared_splits_.try_emplace(recompute);
    if (fresh) known->second = split(in_.stages, in_.work.usual, recompute);
    return known->second;
}

Candidate Candidates::of_stages(std::vector<StagePlan> stages, const Adapters& adapters) const {
    Candidate candidate;
    candidate.replica.tensor = in_.tensor;
    candidate.replica.stages = std::move(stages);
    candidate.replica.max_in_flight = in_.stages;
    candidate.replica.pad_columns = in_.pad_columns;
    candidate.replica.saved_columns = in_.saved_columns;
    candidate.first_admitted = adapters;
    return candidate;
}

/// The same with the microbatches that fit.
Candidate Candidates::sized(const Job& sizes, Candidate candidate) const {
    const Plan plan = plan_with(in_.constants, candidate);
    const ReplicaView view = only_replica(plan);
    const std::int64_t longest = in_.work.longest_sample;
    const bool given =
        sizes.parallel.microbatch_tokens && sizes.parallel.recompute != Recompute::automatic;
    const FittingTokens fitting = given ? FittingTokens{} : fitting_tokens(job_, view, longest);
    const MicrobatchChoice choice =
        choose_microbatch(sizes, view, fitting, in_.work.wanted_tokens(), longest);
    candidate.replica.microbatch_tokens = choice.tokens;
    candidate.replica.recompute = choice.recompute;
    return candidate;
}

/// Recomputation makes layers cost more, so they are split anew when it turns out necessary.
Candidate Candidates::whole_layers(const Job& sizes, const Adapters& adapters) const {
    const auto whole = [&](Recompute recompute) {
        return sized(sizes, of_stages(split_for(sizes, recompute), adapters));
    };
    const Recompute asked = sizes.parallel.recompute;
    const Recompute assumed = asked == Recompute::layer ? asked : Recompute::none;
    const Candidate first = whole(assumed);
    if (asked != Recompute::automatic || first.replica.recompute != Recompute::layer) return first;
    return whole(Recompute::layer);
}

/// The last resort: the split that costs least does not fit even beside one adapter.
Candidate Candidates::by_memory(const Job& sizes, Recompute recompute,
                                const Adapters& adapters) const {
    Candidate candidate = of_stages(split_for(sizes, recompute), adapters);
    const Plan plan = plan_with(in_.constants, candidate);
    const std::int64_t tokens = sizes.parallel.microbatch_tokens.value_or(in_.work.longest_sample);
    std::vector<StagePlan> stages = fit_layers(job_, only_replica(plan), tokens, recompute);
    if (!stages.empty()) candidate.replica.stages = std::move(stages);
    return sized(sizes, std::move(candidate));
}

bool Candidates::has_fair_size(const Job& sizes, const Candidate& candidate) const {
    return sizes.parallel.microbatch_tokens ||
           candidate.replica.microbatch_tokens >= in_.work.wanted_tokens() / crowded_share;
}

/// If possible beside microbatches of a fair size. Fewer adapters take less memory.
Attempt Candidates::admit_most(const Job& sizes, const LayOut& lay_out) const {
    const auto all = static_cast<std::int64_t>(std::min(order_.size(), most_admitted(job_)));
    Attempt attempt;
    const auto holds = [&](std::int64_t count, bool with_fair_size) {
        attempt.candidate = lay_out(first_of_order(static_cast<std::size_t>(count)));
        attempt.fits =
            (!with_fair_size || has_fair_size(sizes, attempt.candidate)) && fits(attempt.candidate);
        return attempt.fits;
    };
    attempt.is_full = holds(all, false);
    for (const bool with_fair_size : {true, false}) {
        if (attempt.fits || !holds(1, with_fair_size)) continue;
        holds(last_that_holds(1, all,
                              [&](std::int64_t count) { return holds(count, with_fair_size); }),
              with_fair_size);
    }
    return attempt;
}

std::vector<AdapterId> Candidates::first_of_order(std::size_t count) const {
    return {order_.begin(), order_.begin() + static_cast<std::ptrdiff_t>(count)};
}

}  // namespace loratrain
