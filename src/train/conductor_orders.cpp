#include <algorithm>

#include "base/error.h"
#include "base/log.h"
#include "plan/schedule/admission.h"
#include "train/conductor.h"
#include "train/job_warnings.h"

/// Who trains, and what people order while the job runs; the pipeline is empty.

namespace loratrain {

void Conductor::admit_adapters() {
    const std::vector<AdapterId> admitted = choose_adapters(adapters_);
    adapters_.admit(admitted);
    if (admitted == admitted_) return;
    admitted_ = admitted;
    post(AdmitAdapters{admitted});
    performer_.admit(admitted);
}

/// Those that claim it; beside them trials on speculation, as long as that costs the others
/// little.
std::vector<AdapterId> Conductor::choose_adapters(AdapterTable& table) const {
    std::vector<AdapterClaim> claims = table.claims();
    int place = 0;
    for (const AdapterId a : TrialSearch(parts_.job, table).speculation()) {
        claims[index(a)].unfinished = true;
        claims[index(a)].speculation = ++place;
    }
    std::vector<AdapterId> admitted = admit(parts_.job, parts_.plan, claims);
    if (place == 0 || parts_.job.sweep->speculate == Speculation::always) return admitted;
    double room = tokens_of_fixed_costs(parts_.plan);
    std::erase_if(admitted, [&](AdapterId a) {
        room -= table[a].tokens_per_step;
        return claims[index(a)].speculation > 0 && room < 0;
    });
    return admitted;
}

/// Nothing is left to train, and nobody has ordered more.
bool Conductor::finished() {
    if (!adapters_.finished()) return false;
    inbox_->let_settle();
    obey_orders();
    if (parts_.job.sweep) wait_for_trials();
    return adapters_.finished();
}

/// Whether ranks do so already.
bool Conductor::are_looked_at(const InboxFile& file) const {
    if (!additions_) return false;
    return std::any_of(additions_->files.begin(), additions_->files.end(),
                       [&](const InboxFile& known) { return known.path == file.path; });
}

/// Looks for orders where none are known yet.
bool Conductor::orders_wait() {
    if (!inbox_) return false;
    if (orders_.additions.empty() && orders_.stops.empty()) {
        orders_ = inbox_->look();
        std::erase_if(orders_.additions,
                      [&](const InboxFile& file) { return are_looked_at(file); });
        std::erase_if(orders_.stops,
                      [&](const std::string& name) { return stopping_.contains(name); });
    }
    return !orders_.additions.empty() || !orders_.stops.empty();
}

void Conductor::obey_orders() {
    grow();
    if (!orders_wait()) return;
    for (const std::string& name : orders_.stops) {
        if (const std::optional<AdapterId> adapter = take_stop(name)) stop_adapter(*adapter);
    }
    for (const InboxFile& file : orders_.additions) add_adapters(file);
    orders_ = {};
}

void Conductor::add_adapters(const InboxFile& file) {
    const JobTail tail{parts_.job.adapters.size(), parts_.job.datasets.size()};
    post(AddAdapters{file});
    try {
        performer_.add(file, [&] { inbox_->accept(file); });
    } catch (const InputError& error) {
        return inbox_->reject(file, error.what());
    }
    begin_added(file, tail);
}

/// The job has got what the file adds, behind the tail.
void Conductor::begin_added(const InboxFile& file, const JobTail& tail) {
    const std::vector<AdapterId> added = adapters_.grow();
    journal_.begin(added);
    log::info(cat("took ", added.size(),
                  added.size() == 1 ? " more adapter from " : " more adapters from ", file.path));
    for (const std::string& text :
         job_warnings(parts_.job, parts_.plan, parts_.files, parts_.base, tail)) {
        log::warn(cat(file.path, ": ", text));
    }
}

/// That is to stop; where the run has none of that name, the order is refused.
std::optional<AdapterId> Conductor::take_stop(const std::string& name) {
    const auto& adapters = parts_.job.adapters;
    const auto found = std::find_if(adapters.begin(), adapters.end(),
                                    [&](const AdapterJob& a) { return a.name == name; });
    if (found == adapters.end()) {
        inbox_->reject_stop(name, "this run has no such adapter");
        return {};
    }
    // A restart from an older checkpoint has to find the order again.
    stopping_.insert(name);
    return static_cast<AdapterId>(found - adapters.begin());
}

void Conductor::stop_adapter(AdapterId adapter) {
    AdapterState& state = adapters_[adapter].state;
    if (!is_unfinished(state.status)) return;
    const bool trained = state.status == AdapterStatus::running;
    state.status = AdapterStatus::stopped;
    log::info(cat("adapter ", parts_.job.adapter(adapter).name, " is stopped at step ", state.steps,
                  ", as ordered"));
    if (state.steps == 0) return;
    if (trained && !regular_evaluation()) {
        evaluate({adapter});
        judge_evaluations({adapter});
        journal_.flush();
    }
    if (sweep_.is_wanted(adapter)) export_adapter(adapter);
}

/// Orders to stop that a checkpoint has.
void Conductor::forget_obeyed(const std::set<std::string>& names) {
    for (const std::string& name : std::set<std::string>(names)) {
        inbox_->obeyed(name);
        stopping_.erase(name);
    }
}

}  // namespace loratrain
