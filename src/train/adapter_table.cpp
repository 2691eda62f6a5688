#include "train/adapter_table.h"

#include <algorithm>

#include "base/error.h"
#include "plan/rungs.h"
#include "plan/warmup.h"

namespace loratrain {

AdapterTable::AdapterTable(const Job& job, const Plan& plan,
                           const std::vector<DatasetInfo>& datasets)
    : job_(job), plan_(plan), datasets_(datasets) {
    add_rows(AdapterStatus::running);
    if (job.parallel.find_deployment) deployment_.judged_for = all();
}

void AdapterTable::add_rows(AdapterStatus status) {
    for (std::size_t i = rows_.size(); i < job_.adapters.size(); ++i) {
        const std::int64_t tokens = datasets_[index(job_.adapters[i].dataset)].train_tokens();
        AdapterRow& row = rows_.emplace_back();
        row.state.status = status;
        row.tokens_per_step = static_cast<double>(tokens) / plan_.adapters[i].steps_per_epoch;
    }
}

void AdapterTable::restore(const RunState& run) {
    LORATRAIN_CHECK(run.adapters.size() == rows_.size(), "a state of ", run.adapters.size(),
                    " adapters for ", rows_.size());
    round_ = run.round;
    deployment_ = run.deployment;
    for (const AdapterId adapter : all()) {
        AdapterState& state = rows_[index(adapter)].state;
        state = run.adapters[index(adapter)];
        const bool more = steps_left(adapter) > 0;
        if (state.status == AdapterStatus::done && more) state.status = AdapterStatus::running;
    }
}

RunState AdapterTable::state(double elapsed_seconds) const {
    RunState run{round_, elapsed_seconds, {}, deployment_};
    AdapterState not_held;
    not_held.status = AdapterStatus::waiting;
    for (const AdapterRow& row : rows_) run.adapters.push_back(row.held ? row.state : not_held);
    return run;
}

std::vector<AdapterId> AdapterTable::grow() {
    const std::size_t known = rows_.size();
    add_rows(AdapterStatus::waiting);
    return from(known);
}

std::vector<AdapterId> AdapterTable::from(std::size_t first) const {
    std::vector<AdapterId> adapters;
    for (std::size_t i = first; i < rows_.size(); ++i) {
        adapters.push_back(static_cast<AdapterId>(i));
    }
    return adapters;
}

void AdapterTable::admit(const std::vector<AdapterId>& adapters) {
    for (AdapterRow& row : rows_) {
        if (row.state.status == AdapterStatus::running) row.state.status = AdapterStatus::waiting;
    }
    for (const AdapterId a : adapters) rows_[index(a)].state.status = AdapterStatus::running;
    for (AdapterRow& row : rows_) {
        AdapterState& state = row.state;
        const bool waits = state.status == AdapterStatus::waiting;
        if (waits && is_unjudged(state)) state.status = AdapterStatus::parked;
    }
}

std::vector<AdapterId> AdapterTable::running() const {
    std::vector<AdapterId> adapters = all();
    std::erase_if(adapters, [this](AdapterId a) {
        return rows_[index(a)].state.status != AdapterStatus::running;
    });
    return adapters;
}

bool AdapterTable::finished() const {
    return std::none_of(rows_.begin(), rows_.end(),
                        [](const AdapterRow& row) { return is_unfinished(row.state.status); });
}

bool AdapterTable::any_failed() const {
    return std::any_of(rows_.begin(), rows_.end(), [](const AdapterRow& row) {
        return row.state.status == AdapterStatus::failed;
    });
}

bool AdapterTable::any_waiting() const {
    return std::any_of(rows_.begin(), rows_.end(), [](const AdapterRow& row) {
        return row.held && row.state.status == AdapterStatus::waiting;
    });
}

std::int32_t AdapterTable::steps_left(AdapterId adapter) const {
    return plan_.adapters[index(adapter)].total_steps - rows_[index(adapter)].state.steps;
}

std::int32_t AdapterTable::next_rung(AdapterId adapter) const {
    const std::int32_t total = plan_.adapters[index(adapter)].total_steps;
    const bool searched =
        job_.sweep && job_.sweep->scheduler != TrialScheduler::none && job_.adapter(adapter).trial;
    if (!searched) return total;
    const AdapterState& state = rows_[index(adapter)].state;
    const auto evaluated = static_cast<int>(state.rungs.size());
    return rung_step(*job_.sweep, total, std::max(state.promoted, evaluated),
                     warmup_steps(job_.adapter(adapter), total));
}

std::int32_t AdapterTable::next_stop(AdapterId adapter) const {
    const std::int32_t rung = next_rung(adapter);
    const std::int32_t total = plan_.adapters[index(adapter)].total_steps;
    return is_unjudged(rows_[index(adapter)].state) ? std::min(rung, total - 1) : rung;
}

std::int32_t AdapterTable::steps_to_rung(AdapterId adapter) const {
    return next_rung(adapter) - rows_[index(adapter)].state.steps;
}

std::int32_t AdapterTable::steps_to_stop(AdapterId adapter) const {
    return next_stop(adapter) - rows_[index(adapter)].state.steps;
}

WorkLeft AdapterTable::work_left() const {
    std::int32_t most = 0;
    std::int32_t sum = 0;
    WorkLeft left;
    for (const AdapterId adapter : all()) {
        const AdapterRow& row = rows_[index(adapter)];
        if (!row.held || !is_unfinished(row.state.status)) continue;
        const std::int32_t steps = steps_left(adapter);
        most = std::max(most, steps);
        sum += steps;
        left.tokens += row.tokens_per_step * steps;
    }
    left.rounds = most_admitted(job_) == 1 ? sum : most;
    return left;
}

std::vector<AdapterClaim> AdapterTable::claims() const {
    std::vector<AdapterClaim> claims;
    for (const AdapterId adapter : all()) {
        const AdapterState& state = rows_[index(adapter)].state;
        const bool trains = rows_[index(adapter)].held && is_unfinished(state.status) &&
                            state.status != AdapterStatus::parked && !is_unjudged(state);
        const bool trial = job_.sweep && job_.adapter(adapter).trial;
        claims.push_back({trains, state.steps > 0, trial ? steps_left(adapter) : 0});
    }
    return claims;
}

Progress AdapterTable::progress() const {
    Progress progress;
    progress.round = round_;
    for (const AdapterId adapter : all()) {
        const AdapterRow& row = rows_[index(adapter)];
        progress.steps.push_back(row.state.steps);
        progress.stops.push_back(next_stop(adapter));
        const std::int32_t rung = next_rung(adapter);
        progress.rungs.push_back(rung < plan_.adapters[index(adapter)].total_steps ? rung : 0);
        progress.stopped.push_back(row.state.status != AdapterStatus::running);
    }
    return progress;
}

}  // namespace loratrain
