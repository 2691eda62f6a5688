#include "plan/memory/fit_memory.h"

#include <algorithm>

#include "base/arithmetic.h"

namespace loratrain {

namespace {

constexpr std::int64_t recompute_below_share = 8;

Recompute choose_recompute(const Job& job, const ReplicaView& view, const FittingTokens& fitting,
                           std::int64_t least) {
    if (!may_use(job, Recompute::layer)) return Recompute::none;
    if (!may_use(job, Recompute::none)) return Recompute::layer;
    if (fits_memory(job, view, least, Recompute::none)) return Recompute::none;
    return fitting.layer > fitting.none ? Recompute::layer : Recompute::none;
}

bool stage_fits(const Job& job, const ReplicaView& view, std::size_t stage) {
    return view.plan.bytes_per_rank == 0 ||
           stage_memory(job, view, stage).total() <= view.plan.bytes_per_rank;
}

}  // namespace

bool may_use(const Job& job, Recompute recompute) {
    const Recompute wanted = job.parallel.recompute;
    return wanted == Recompute::automatic || wanted == recompute;
}

bool fits_memory(const Job& job, const ReplicaView& view, std::int64_t tokens,
                 Recompute recompute) {
    ReplicaPlan trial = view.replica;
    trial.microbatch_tokens = tokens;
    trial.recompute = recompute;
    const ReplicaView tried = view.with(trial);
    for (std::size_t s = 0; s < trial.stages.size(); ++s) {
        if (!stage_fits(job, tried, s)) return false;
    }
    return true;
}

std::int64_t largest_fitting_tokens(const Job& job, const ReplicaView& view, Recompute recompute,
                                    std::int64_t least) {
    ReplicaPlan trial = view.replica;
    trial.recompute = recompute;
    const ReplicaView tried = view.with(trial);
    std::int64_t most = std::max(least, most_fitting_tokens);
    for (std::size_t s = 0; s < trial.stages.size(); ++s) {
        const auto fits = [&](std::int64_t tokens) {
            trial.microbatch_tokens = tokens;
            return stage_fits(job, tried, s);
        };
        if (fits(most)) continue;
        if (most == least || !fits(least)) return 0;
        most = last_that_holds(least, most, fits);
    }
    return most;
}

FittingTokens fitting_tokens(const Job& job, const ReplicaView& view, std::int64_t least) {
    if (view.plan.bytes_per_rank == 0) return {};
    return {largest_fitting_tokens(job, view, Recompute::none, least),
            largest_fitting_tokens(job, view, Recompute::layer, least)};
}

MicrobatchChoice choose_microbatch(const Job& job, const ReplicaView& view,
                                   const FittingTokens& fitting, std::int64_t usual,
                                   std::int64_t longest) {
    MicrobatchChoice choice;
    if (job.parallel.microbatch_tokens) {
        choice.tokens = *job.parallel.microbatch_tokens;
        choice.recompute = choose_recompute(job, view, fitting, choice.tokens);
        return choice;
    }
    usual = std::max(usual, longest);
    choice.recompute =
        choose_recompute(job, view, fitting, std::max(longest, usual / recompute_below_share));
    choice.tokens = usual;
    if (!fits_memory(job, view, usual, choice.recompute)) {
        const bool layer = choice.recompute == Recompute::layer;
        const std::int64_t most = layer ? fitting.layer : fitting.none;
        choice.tokens = std::max(longest, most / token_granule * token_granule);
    }
    return choice;
}

}  // namespace loratrain
