#include "train/adapter_table.h"

#include <algorithm>

#include "base/error.h"
#include "plan/rungs.h"
#include "plan/schedule/evaluations.h"

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
        AdapterRun& row = rows_.emplace_back();
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
        // A file that could not be used may be another by now.
        const bool lacked_data = state.status == AdapterStatus::failed && grows(adapter) &&
                                 state.bad_steps_in_row < bad_steps_allowed;
        const bool goes_on = state.status == AdapterStatus::done || lacked_data;
        if (goes_on && more) state.status = AdapterStatus::running;
    }
}

RunState AdapterTable::state(double elapsed_seconds) const {
    RunState run{round_, elapsed_seconds, {}, deployment_};
    for (const AdapterRun& row : rows_) run.adapters.push_back(row.owned ? row.state : not_begun());
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
    for (AdapterRun& row : rows_) {
        if (row.state.status == AdapterStatus::running) row.state.status = AdapterStatus::waiting;
    }
    for (const AdapterId a : adapters) rows_[index(a)].state.status = AdapterStatus::running;
    for (AdapterRun& row : rows_) {
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
                        [](const AdapterRun& row) { return is_unfinished(row.state.status); });
}

bool AdapterTable::any_failed() const {
    return std::any_of(rows_.begin(), rows_.end(), [](const AdapterRun& row) {
        return row.state.status == AdapterStatus::failed;
    });
}

bool AdapterTable::any_waiting() const {
    return std::any_of(rows_.begin(), rows_.end(), [](const AdapterRun& row) {
        return row.owned && row.state.status == AdapterStatus::waiting;
    });
}

std::int32_t AdapterTable::steps_left(AdapterId adapter) const {
    return plan_.adapters[index(adapter)].total_steps - rows_[index(adapter)].state.steps;
}

bool AdapterTable::any_grows() const {
    const std::vector<AdapterId> adapters = all();
    return std::any_of(adapters.begin(), adapters.end(), [this](AdapterId a) {
        const AdapterRun& row = rows_[index(a)];
        return row.owned && is_unfinished(row.state.status) && grows(a);
    });
}

bool AdapterTable::grows(AdapterId adapter) const {
    return datasets_[index(job_.adapter(adapter).dataset)].arrivals.has_value();
}

bool AdapterTable::has_batch(AdapterId adapter, std::int32_t steps) const {
    const auto& arrivals = datasets_[index(job_.adapter(adapter).dataset)].arrivals;
    return !arrivals || steps < arrivals->steps();
}

std::int32_t AdapterTable::next_rung(AdapterId adapter) const {
    const std::int32_t total = plan_.adapters[index(adapter)].total_steps;
    const bool judged =
        job_.sweep && job_.sweep->scheduler != TrialScheduler::none && job_.adapter(adapter).trial;
    if (!judged) return total;
    const AdapterState& state = rows_[index(adapter)].state;
    const auto evaluated = static_cast<int>(state.rungs.size());
    return rung_step(*job_.sweep, total, std::max(state.promoted, evaluated),
                     warmup_steps(job_.adapter(adapter), total));
}

std::int32_t AdapterTable::next_stop(AdapterId adapter) const {
    const std::int32_t rung = next_rung(adapter);
    const std::int32_t total = plan_.adapters[index(adapter)].total_steps;
    const AdapterState& state = rows_[index(adapter)].state;
    const auto& arrivals = datasets_[index(job_.adapter(adapter).dataset)].arrivals;
    if (arrivals) return std::max(state.steps, std::min(total, arrivals->steps()));
    return is_unjudged(state) ? std::min(rung, total - 1) : rung;
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
        const AdapterRun& row = rows_[index(adapter)];
        if (!row.owned || !is_unfinished(row.state.status)) continue;
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
        const bool trains = rows_[index(adapter)].owned && may_train(state.status) &&
                            !is_unjudged(state) && has_batch(adapter, state.steps);
        const bool trial = job_.sweep && job_.adapter(adapter).trial;
        claims.push_back({trains, state.steps > 0, trial ? steps_left(adapter) : 0});
    }
    return claims;
}

Progress AdapterTable::progress() const {
    Progress progress;
    progress.round = round_;
    for (const AdapterId adapter : all()) {
        const AdapterRun& row = rows_[index(adapter)];
        progress.steps.push_back(row.state.steps);
        progress.stops.push_back(next_stop(adapter));
        const std::int32_t rung = next_rung(adapter);
        progress.rungs.push_back(rung < plan_.adapters[index(adapter)].total_steps ? rung : 0);
        progress.stopped.push_back(row.state.status != AdapterStatus::running);
    }
    return progress;
}

// ---- the stream under way

void AdapterTable::begin_stream() {
    for (AdapterRun& row : rows_) {
        row.stream = {};
        row.reports_rung = false;
        if (row.state.status == AdapterStatus::running) row.stream.join(round_, row.state.steps);
    }
}

void AdapterTable::end_stream(std::int32_t round) {
    round_ = round;
    for (AdapterRun& row : rows_) {
        if (row.stream.phase() == Phase::training) row.stream.enter(Phase::stepped);
    }
}

std::vector<AdapterId> AdapterTable::in_stream() const {
    std::vector<AdapterId> adapters = all();
    std::erase_if(adapters, [this](AdapterId a) { return !rows_[index(a)].stream.joined(); });
    return adapters;
}

std::int32_t AdapterTable::steps_to_come(AdapterId adapter) const {
    const AdapterRun& row = rows_[index(adapter)];
    return row.stream.last_step() ? *row.stream.last_step() - row.state.steps : steps_left(adapter);
}

std::int32_t AdapterTable::steps_before(AdapterId adapter, std::int32_t round) const {
    const StreamPart& stream = rows_[index(adapter)].stream;
    if (stream.last_step()) return *stream.last_step();
    const std::int32_t total = plan_.adapters[index(adapter)].total_steps;
    return std::min(total, stream.first_steps() + round - stream.first_round());
}

bool AdapterTable::trains_beyond(AdapterId adapter, std::int32_t round) const {
    const StreamPart& stream = rows_[index(adapter)].stream;
    if (!stream.joined() || stream.last_step()) return false;
    return steps_before(adapter, round) < plan_.adapters[index(adapter)].total_steps;
}

bool AdapterTable::has_eval_samples(AdapterId adapter) const {
    return loratrain::has_eval_samples(job_, datasets_, adapter);
}

bool AdapterTable::is_evaluated(AdapterId adapter) const {
    const AdapterRun& row = rows_[index(adapter)];
    return !has_eval_samples(adapter) || row.stream.evaluated() == row.state.steps;
}

std::int32_t AdapterTable::evaluations_pending(AdapterId adapter, std::int32_t round) const {
    const int every = job_.eval.every_steps;
    if (every == 0 || !has_eval_samples(adapter)) return 0;
    const StreamPart& stream = rows_[index(adapter)].stream;
    const std::int32_t noted =
        std::max(stream.first_steps(), stream.evaluated().value_or(stream.first_steps()));
    return round / every - (stream.first_round() + noted - stream.first_steps()) / every;
}

bool AdapterTable::is_evaluated_behind(const BatchPlan& batch) const {
    const bool due = all_are_evaluated(job_, batch.round + 1) || batch.last_of_adapter ||
                     is_at_rung(batch.adapter, batch.step + 1);
    return due && has_eval_samples(batch.adapter);
}

// ---- trials at rungs

bool AdapterTable::has_rungs() const {
    return job_.sweep && job_.sweep->scheduler != TrialScheduler::none && job_.sweep->rungs > 1;
}

bool AdapterTable::comes_to_rung(AdapterId adapter, std::int32_t round) const {
    return has_rungs() && trains_beyond(adapter, round) &&
           steps_before(adapter, round) == next_rung(adapter);
}

/// What all are evaluated by is not what a rung counts.
bool AdapterTable::is_at_rung(AdapterId adapter, std::int32_t step) const {
    if (!has_rungs() || step != next_rung(adapter)) return false;
    const StreamPart& stream = rows_[index(adapter)].stream;
    return step < plan_.adapters[index(adapter)].total_steps &&
           !all_are_evaluated(job_, stream.first_round() + step - stream.first_steps());
}

bool AdapterTable::ends_at_rungs(AdapterId adapter) const {
    if (!has_rungs() || !job_.adapter(adapter).trial) return false;
    const auto rungs = static_cast<std::size_t>(job_.sweep->rungs - 1);
    const std::int32_t total = plan_.adapters[index(adapter)].total_steps;
    return rows_[index(adapter)].state.rungs.size() < rungs && next_rung(adapter) == total;
}

}  // namespace loratrain
