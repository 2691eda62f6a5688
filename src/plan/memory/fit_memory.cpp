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

Recompute choose_recompute(const Job& job, const ReplicaView& view, const FittingTokens& fitting,
                           std::int64_t least) {
    if (!may_use(job, Recompute::layer)) return Recompute::none;
    if (!may_use(job, Recompute::none)) return Recompute::layer;
    if (fits_memory(job, view, least, Recompute::none)) return Recompute::none;
    return fitting.layer > fitting.none ? Recompute::layer : Recompute::none;
}

std::string hint_for_given_tokens(const Job& job, const ReplicaView& view,
                                  const FittingTokens& fitting) {
    std::vector<std::string> hints;
    const std::int64_t now = view.replica.microbatch_tokens;
    const std::int64_t usable = may_use(job, Recompute::layer) ? fitting.layer : fitting.none;
    if (usable > 0) {
        hints.push_back(cat("microbatch_tokens: ", usable, " would fit (now ", now, ")"));
    }
    if (!may_use(job, Recompute::layer) && fitting.layer > usable) {
        hints.push_back(
            fits_memory(job, view, now, Recompute::layer)
                ? std::string("recompute: layer would fit")
                : cat("recompute: layer with microbatch_tokens: ", fitting.layer, " would fit"));
    }
    return join(hints, "; ");
}

/// Where not even the longest sample fits.
std::string hint_for_longest(const Job& job, const ReplicaView& view, std::int64_t longest) {
    const std::int64_t most = largest_fitting_tokens(job, view, Recompute::layer, 1);
    const std::string keys =
        job.parallel.microbatch_tokens ? "microbatch_tokens and max_seq_len" : "max_seq_len";
    return cat("no microbatch_tokens fits, not even the ", longest,
               " of the longest sample with recompute: layer",
               most > 0 ? cat(", but ", most, " would: lower ", keys,
                              ", with over_length: truncate or drop")
                        : std::string());
}

/// Number of stages, more than the plan's, with which the smallest choice fits; 0 = none.
std::int32_t fewest_fitting_stages(const Job& job, const ReplicaView& view, std::int64_t longest,
                                   const LayerSplit& split) {
    const auto layers = static_cast<std::int32_t>(view.lane_model.layers);
    const std::int64_t tokens = job.parallel.microbatch_tokens.value_or(longest);
    const Recompute recompute = may_use(job, Recompute::layer) ? Recompute::layer : Recompute::none;
    ReplicaPlan trial = view.replica;
    for (auto n = static_cast<std::int32_t>(view.replica.stages.size()) + 1; n <= layers; ++n) {
        trial.stages = split(n, recompute);
        trial.max_in_flight = n;
        if (!fit_layers(job, view.with(trial), tokens, recompute).empty()) return n;
    }
    return 0;
}

}  // namespace

bool may_use(const Job& job, Recompute recompute) {
    const Recompute wanted = job.parallel.recompute;
    return wanted == Recompute::automatic || wanted == recompute;
}

bool fits_memory(const Job& job, const ReplicaView& view, std::int64_t tokens,
                 Recompute recompute) {
    if (view.plan.bytes_per_rank == 0) return true;
    ReplicaPlan trial = view.replica;
    trial.microbatch_tokens = tokens;
    trial.recompute = recompute;
    const ReplicaView tried = view.with(trial);
    for (std::size_t s = 0; s < trial.stages.size(); ++s) {
        if (stage_memory(job, tried, s).total() > view.plan.bytes_per_rank) return false;
    }
    return true;
}

std::int64_t largest_fitting_tokens(const Job& job, const ReplicaView& view, Recompute recompute,
                                    std::int64_t least) {
    const auto fits = [&](std::int64_t tokens) {
        return fits_memory(job, view, tokens, recompute);
    };
    if (!fits(least)) return 0;
    const std::int64_t most = std::max(least, most_fitting_tokens);
    return fits(most) ? most : last_that_holds(least, most, fits);
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

std::string memory_hint(const Job& job, const ReplicaView& view, const FittingTokens& fitting,
                        std::int64_t longest, const LayerSplit& split) {
    std::string hint;
    if (fitting.layer == 0) {
        hint = hint_for_longest(job, view, longest);
    } else if (job.parallel.microbatch_tokens) {
        hint = hint_for_given_tokens(job, view, fitting);
    } else {
        hint = "recompute: layer would fit";
    }
    const std::int32_t enough = fewest_fitting_stages(job, view, longest, split);
    return cat(hint, "; more than ", view.replica.stages.size(),
               " pipeline stages (ranks) make each one smaller",
               enough > 0 ? cat(", ", enough, " would fit") : std::string());
}

}  // namespace loratrain
