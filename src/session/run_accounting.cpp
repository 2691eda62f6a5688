#include "session/run_accounting.h"

#include <algorithm>
#include <numeric>
#include <set>

#include "comm/collective.h"
#include "plan/cost/cost_model.h"
#include "plan/cost/device.h"

namespace loratrain {

namespace {

double& of(PhaseSeconds& seconds, RunPhase phase) {
    return seconds[static_cast<std::size_t>(phase)];
}

RankSpread spread_of(const std::vector<RankAccount>& ranks, std::size_t phase) {
    RankSpread spread{ranks.front().seconds[phase], 0.0, 0.0};
    for (const RankAccount& rank : ranks) {
        const double seconds = rank.seconds[phase];
        spread.least = std::min(spread.least, seconds);
        spread.most = std::max(spread.most, seconds);
        spread.mean += seconds / static_cast<double>(ranks.size());
    }
    // Rounding must not put the mean of equal numbers beside them.
    spread.mean = std::clamp(spread.mean, spread.least, spread.most);
    return spread;
}

double mean_of(const std::vector<RankAccount>& ranks, double RankAccount::*value) {
    double sum = 0.0;
    for (const RankAccount& rank : ranks) sum += rank.*value;
    return sum / static_cast<double>(ranks.size());
}

/// Seconds that the plan's costs split, of all ranks' mean.
KindSeconds mean_kinds(const std::vector<RankAccount>& ranks, KindSeconds RankAccount::*kinds) {
    KindSeconds sum;
    for (const RankAccount& rank : ranks) sum += rank.*kinds;
    return sum.scaled_to(sum.sum() / static_cast<double>(ranks.size()));
}

void add_energy(const std::vector<RankAccount>& ranks, RunAccount& account) {
    std::set<std::string> counted;
    for (const RankAccount& rank : ranks) {
        if (!rank.joules || !counted.insert(rank.device.place).second) continue;
        account.joules += *rank.joules;
        ++account.sensors;
    }
}

}  // namespace

template <class Archive>
void fields(Archive& archive, KindSeconds& kinds) {
    archive.list(kinds.attention, kinds.linears, kinds.head);
}

template <class Archive>
void fields(Archive& archive, RankDevice& device) {
    archive("name", device.name);
    archive("place", device.place);
}

template <class Archive>
void fields(Archive& archive, RankAccount& rank) {
    archive("seconds", rank.seconds);
    archive("forward", rank.forward);
    archive("backward", rank.backward);
    archive("wall_seconds", rank.wall_seconds);
    archive("training_seconds", rank.training_seconds);
    archive("tokens", rank.tokens);
    archive("squares", rank.squares);
    archive("device", rank.device);
    archive("joules", rank.joules);
}

RankAccount account_of_rank(const PhaseTimes& times, const PhaseAccount& work) {
    RankAccount rank;
    rank.wall_seconds = times.total();
    rank.training_seconds = times.of(training_phase);
    rank.seconds = work.seconds;
    of(rank.seconds, RunPhase::other) = 0.0;
    const double planned = times.of(planning_phase) + times.of(cost_phase);
    of(rank.seconds, RunPhase::planning) += planned;
    of(rank.seconds, RunPhase::start) = rank.wall_seconds - rank.training_seconds - planned;
    const double known = std::accumulate(rank.seconds.begin(), rank.seconds.end(), 0.0);
    of(rank.seconds, RunPhase::other) = std::max(0.0, rank.wall_seconds - known);
    rank.forward = work.forward.scaled_to(of(rank.seconds, RunPhase::forward));
    rank.backward = work.backward.scaled_to(of(rank.seconds, RunPhase::backward));
    return rank;
}

RunAccount account_of_run(const std::vector<RankAccount>& ranks, const Plan& plan, double tokens) {
    RunAccount account;
    account.ranks = static_cast<int>(ranks.size());
    account.wall_seconds = mean_of(ranks, &RankAccount::wall_seconds);
    account.training_seconds = mean_of(ranks, &RankAccount::training_seconds);
    for (std::size_t p = 0; p < run_phase_count; ++p) account.phases[p] = spread_of(ranks, p);
    account.forward = mean_kinds(ranks, &RankAccount::forward);
    account.backward = mean_kinds(ranks, &RankAccount::backward);
    account.tokens = tokens;
    const double trained = mean_of(ranks, &RankAccount::tokens);
    const double squares = mean_of(ranks, &RankAccount::squares);
    const double sample_tokens = trained > 0.0 ? squares / trained : 0.0;
    account.useful_flop = tokens * token_flop(ModelSpec(plan.model), sample_tokens).total();
    account.device = ranks.front().device.name;
    account.peak_flop_rate = peak_flop_rate(account.device, plan.compute).value_or(0.0);
    add_energy(ranks, account);
    return account;
}

RunAccount gather_account(const MpiSession& world, const Plan& plan, const RankAccount& own,
                          double tokens) {
    const std::vector<RankAccount> ranks = gather(world, own);
    return world.is_root() ? account_of_run(ranks, plan, tokens) : RunAccount{};
}

}  // namespace loratrain
