#include "train/services/step_exports.h"

#include <algorithm>
#include <utility>

#include "train/services/services.h"

namespace loratrain {

namespace {

/// Copies that wait for the disk; more would take the host's memory.
constexpr std::size_t most_waiting = 4;

}  // namespace

bool StepExportService::is_due(const AdapterAtStep& at) const {
    const int every = worker_.parts.job.exports.every_steps;
    return every > 0 && at.step % every == 0;
}

/// It is due, and neither written nor on its way.
bool StepExportService::is_wanted(const AdapterAtStep& at) const {
    const auto newest = exported_.find(at.adapter);
    const bool is_new = newest == exported_.end() || newest->second < at.step;
    return is_due(at) && is_new && !asked_.contains(at);
}

/// Without the export of their last step.
std::vector<AdapterId> StepExportService::waiting_for_rollouts() const {
    std::vector<AdapterId> adapters = worker_.adapters.all();
    std::erase_if(adapters, [this](AdapterId a) {
        const AdapterState& state = worker_.state(a);
        return !is_unfinished(state.status) || worker_.adapters.has_batch(a, state.steps) ||
               worker_.adapters[a].stream.joined() || !is_wanted({a, state.steps});
    });
    return adapters;
}

bool StepExportService::needs_drain(std::int32_t /*round*/) {
    return !waiting_for_rollouts().empty();
}

std::int32_t StepExportService::next_event(const Progress& planned) const {
    const int every = worker_.parts.job.exports.every_steps;
    std::int64_t next = no_round;
    if (every == 0) return no_round;
    for (const AdapterId a : worker_.adapters.all()) {
        if (planned.stopped[index(a)]) continue;
        const std::int32_t steps = planned.steps[index(a)];
        if (steps >= worker_.total_steps(a)) continue;
        next = std::min(next, std::int64_t{planned.round} + every - steps % every);
    }
    return static_cast<std::int32_t>(next);
}

bool StepExportService::change(const Progress& planned, StreamChange& change) {
    asking_.clear();
    for (const AdapterId a : worker_.adapters.in_stream()) {
        const AdapterAtStep at{a, planned.steps[index(a)]};
        if (is_wanted(at)) asking_.push_back(at);
    }
    if (!asking_.empty() && !worker_.copies_fit) {
        asking_.clear();
        return false;  // write_missing() copies one after the other
    }
    const std::vector<AdapterId>& begun = change.begun;
    for (const AdapterAtStep& at : asking_) {
        const bool begins = std::find(begun.begin(), begun.end(), at.adapter) != begun.end();
        if (begins) {
            change.begun_kept.push_back(at);
        } else {
            change.keep(at);
        }
    }
    return true;
}

/// The change is made.
void StepExportService::on_planning(std::int32_t /*round*/) {
    asked_.insert(asking_.begin(), asking_.end());
    asking_.clear();
}

void StepExportService::on_part(const PartKey& key, AdapterParts::ByRank& values) {
    const AdapterAtStep at{key.adapter, key.step};
    if (key.use != PartUse::kept || !is_due(at)) return;
    asked_.erase(at);
    if (!is_wanted(at)) return;
    exported_[key.adapter] = key.step;
    waiting_.push_back({at, values});
    if (waiting_.size() > most_waiting) writing_.wait();
    write_next();
}

void StepExportService::go_on() {
    write_next();
}

void StepExportService::write_next() {
    writing_.take_written();
    if (writing_.is_writing() || waiting_.empty()) return;
    at_ = waiting_.front().at;
    writing_.begin(at_.adapter, worker_.beside_files(),
                   [this, at = at_, own = std::move(waiting_.front().values)] {
                       write_step_export(worker_.parts.job, worker_.parts.plan.model, at.adapter,
                                         at.step, worker_.ranks.join(at.adapter, own));
                   });
    waiting_.pop_front();
}

void StepExportService::write_missing(const std::vector<AdapterId>& adapters) {
    for (const AdapterId a : adapters) {
        const AdapterAtStep at{a, worker_.state(a).steps};
        if (!is_wanted(at) || !worker_.holds(a)) continue;
        if (has_step_export(worker_.parts.job, a, at.step)) {
            exported_[a] = at.step;
            continue;
        }
        worker_.stream.keep_parameters({at});
        worker_.stream.finish_orders();  // one after the other: the host may have no room for all
    }
}

void StepExportService::write_waiting() {
    for (const AdapterId a : waiting_for_rollouts()) {
        worker_.services->admission.hold({a});
        write_missing({a});
    }
    finish();
}

bool StepExportService::written_for(const StateAtRound& state) const {
    const auto is_behind = [&](const AdapterAtStep& at) {
        return at.step > state.steps(at.adapter);
    };
    return (!writing_.is_writing() || is_behind(at_)) &&
           std::all_of(waiting_.begin(), waiting_.end(),
                       [&](const Waiting& waiting) { return is_behind(waiting.at); });
}

void StepExportService::finish() {
    while (is_writing()) {
        writing_.wait();
        write_next();
    }
}

}  // namespace loratrain
