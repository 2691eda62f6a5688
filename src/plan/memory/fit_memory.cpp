#include "plan/memory/fit_memory.h"

#include <algorithm>
#include <vector>

#include "base/bisect.h"
#include "base/text.h"
#include "plan/deploy/fit_layers.h"

namespace loratrain {

namespace {

constexpr std::int64_t recompute_below_share = 8;
constexpr std::int64_t token_granule = 128;

Recompute choose_recompute(const Job& job, const Plan& plan, std::int64_t least) {
    if (!may_use(job, Recompute::layer)) return Recompute::none;
    if (!may_use(job, Recompute::none)) return Recompute::layer;
    if (fits_memory(job, plan, least, Recompute::none)) return Recompute::none;
    return plan.fitting.layer > plan.fitting.none ? Recompute::layer : Recompute::none;
}

std::string hint_for_given_tokens(const Job& job, const Plan& plan) {
    std::vector<std::string> hints;
    const std::int64_t now = plan.microbatch_tokens;
    const std::int64_t fitting =
        may_use(job, Recompute::layer) ? plan.fitting.layer : plan.fitting.none;
    if (fitting > 0) {
        hints.push_back(cat("microbatch_tokens: ", fitting, " would fit (now ", now, ")"));
    }
    if (!may_use(job, Recompute::layer) && plan.fitting.layer > fitting) {
        hints.push_back(fits_memory(job, plan, now, Recompute::layer)
                            ? std::string("recompute: layer would fit")
                            : cat("recompute: layer with microbatch_tokens: ", plan.fitting.layer,
                                  " would fit"));
    }
    return join(hints, "; ");
}

/// Number of stages, more than the plan's, with which the smallest choice fits; 0 = none.
std::int32_t fewest_fitting_stages(const Job& job, const Plan& plan, std::int64_t longest,
                                   const LayerSplit& split) {
    const auto layers = static_cast<std::int32_t>(plan.model.layers);
    const std::int64_t tokens = job.parallel.microbatch_tokens.value_or(longest);
    const Recompute recompute = may_use(job, Recompute::layer) ? Recompute::layer : Recompute::none;
    Plan trial = plan;
    for (auto n = static_cast<std::int32_t>(plan.replica.stages.size()) + 1; n <= layers; ++n) {
        trial.replica.stages = split(n, recompute);
        trial.max_in_flight = n;
        if (!fit_layers(job, trial, tokens, recompute).empty()) return n;
    }
    return 0;
}

}  // namespace

bool may_use(const Job& job, Recompute recompute) {
    const Recompute wanted = job.parallel.recompute;
    return wanted == Recompute::automatic || wanted == recompute;
}

bool fits_memory(const Job& job, const Plan& plan, std::int64_t tokens, Recompute recompute) {
    if (plan.bytes_per_rank == 0) return true;
    Plan trial = plan;
    trial.microbatch_tokens = tokens;
    trial.recompute = recompute;
    for (std::size_t s = 0; s < trial.replica.stages.size(); ++s) {
        if (stage_memory(job, trial, s).total() > plan.bytes_per_rank) return false;
    }
    return true;
}

std::int64_t largest_fitting_tokens(const Job& job, const Plan& plan, Recompute recompute,
                                    std::int64_t least) {
    const auto fits = [&](std::int64_t tokens) {
        return fits_memory(job, plan, tokens, recompute);
    };
    if (!fits(least)) return 0;
    const std::int64_t most = std::max(least, most_fitting_tokens);
    return fits(most) ? most : last_that_holds(least, most, fits);
}

MicrobatchChoice choose_microbatch(const Job& job, const Plan& plan, std::int64_t usual,
                                   std::int64_t longest) {
    MicrobatchChoice choice;
    if (job.parallel.microbatch_tokens) {
        choice.tokens = *job.parallel.microbatch_tokens;
        choice.recompute = choose_recompute(job, plan, choice.tokens);
        return choice;
    }
    usual = std::max(usual, longest);
    choice.recompute =
        choose_recompute(job, plan, std::max(longest, usual / recompute_below_share));
    choice.tokens = usual;
    if (!fits_memory(job, plan, usual, choice.recompute)) {
        const bool layer = choice.recompute == Recompute::layer;
        const std::int64_t fitting = layer ? plan.fitting.layer : plan.fitting.none;
        choice.tokens = std::max(longest, fitting / token_granule * token_granule);
    }
    return choice;
}

std::string memory_hint(const Job& job, const Plan& plan, std::int64_t longest,
                        const LayerSplit& split) {
    std::string hint;
    if (plan.fitting.layer == 0) {
        hint = cat("no microbatch_tokens fits, not even the ", longest,
                   " of the longest sample with recompute: layer");
    } else if (job.parallel.microbatch_tokens) {
        hint = hint_for_given_tokens(job, plan);
    } else {
        hint = "recompute: layer would fit";
    }
    const std::int32_t enough = fewest_fitting_stages(job, plan, longest, split);
    return cat(hint, "; more than ", plan.replica.stages.size(),
               " pipeline stages (ranks) make each one smaller",
               enough > 0 ? cat(", ", enough, " would fit") : std::string());
}

}  // namespace loratrain
