#include <algorithm>

#include "base/error.h"
#include "base/log.h"
#include "io/files.h"
#include "plan/schedule/admission.h"
#include "train/trainer.h"

/// Who trains, and what people order while the job runs; the pipeline is empty.

namespace loratrain {

void Trainer::admit_adapters() {
    std::vector<AdapterClaim> claims;
    for (const AdapterState& adapter : state_.adapters) {
        claims.push_back({is_unfinished(adapter.status), adapter.steps > 0});
    }
    const std::vector<AdapterId> admitted = admit(parts_.job, parts_.plan, claims);
    std::string list;
    for (AdapterState& adapter : state_.adapters) {
        if (is_unfinished(adapter.status)) adapter.status = AdapterStatus::waiting;
    }
    for (const AdapterId a : admitted) {
        state_.adapters[index(a)].status = AdapterStatus::running;
        list += cat(number(a), " ");
    }
    if (list == admitted_) return;
    admitted_ = list;
    issue(Directive::admit, list);
}

/// Before their first step.
void Trainer::evaluate_newcomers() {
    std::vector<AdapterId> newcomers;
    for (const AdapterId a : running_adapters()) {
        if (is_untouched(state_.adapters[index(a)])) newcomers.push_back(a);
    }
    evaluate_adapters(newcomers);
    flush_metrics();
}

void Trainer::look_for_orders() {
    orders_ = inbox_->look();
    std::erase_if(orders_.stops, [&](const std::string& name) { return stopping_.contains(name); });
}

void Trainer::obey_orders() {
    if (orders_.additions.empty() && orders_.stops.empty()) look_for_orders();
    for (const std::string& name : orders_.stops) stop_adapter(name);
    for (const InboxFile& file : orders_.additions) {
        const std::size_t before = state_.adapters.size();
        issue(Directive::grow, file.path + "\n" + file.text);
        if (state_.adapters.size() == before) {
            inbox_->reject(file, rejection_);
            continue;
        }
        log::info(cat("took ", state_.adapters.size() - before, " more adapters from ", file.path));
    }
    orders_ = {};
}

/// Nothing is left to train, and nobody has ordered more.
bool Trainer::finished() {
    if (!state_.finished()) return false;
    inbox_->let_settle();
    obey_orders();
    return state_.finished();
}

void Trainer::stop_adapter(const std::string& name) {
    const auto& adapters = parts_.job.adapters;
    const auto found = std::find_if(adapters.begin(), adapters.end(),
                                    [&](const AdapterJob& a) { return a.name == name; });
    if (found == adapters.end()) return inbox_->reject_stop(name, "this run has no such adapter");
    const std::size_t a = static_cast<std::size_t>(found - adapters.begin());
    AdapterState& state = state_.adapters[a];
    // A restart from an older checkpoint has to find the order again.
    stopping_.insert(name);
    if (!is_unfinished(state.status)) return;
    const bool trained = state.status == AdapterStatus::running;
    state.status = AdapterStatus::stopped;
    log::info(cat("adapter ", name, " is stopped at step ", state.steps, ", as ordered"));
    if (state.steps == 0) return;
    if (trained && !regular_evaluation()) {
        const std::vector<AdapterId> ended{static_cast<AdapterId>(a)};
        evaluate_adapters(ended);
        judge_evaluations(ended);
        flush_metrics();
    }
    issue(Directive::export_adapter, std::to_string(a));
}

void Trainer::grow(const std::string& argument) {
    const std::size_t end_of_path = argument.find('\n');
    const InboxFile file{argument.substr(0, end_of_path), argument.substr(end_of_path + 1)};
    const std::size_t known = parts_.job.adapters.size();
    parts_.loader.stop();
    try {
        grow_run(parts_.mpi,
                 {parts_.job, parts_.plan, parts_.files, parts_.datasets, parts_.identity,
                  parts_.with_tokens, [&] { inbox_->accept(file); }},
                 file.text, file.path);
    } catch (const InputError& error) {
        rejection_ = error.what();
        return;
    }
    parts_.loader.restart(datasets_of_adapters(parts_.job));
    parts_.stage.bank().add_adapters();
    AdapterState waiting;
    waiting.status = AdapterStatus::waiting;
    state_.adapters.resize(parts_.job.adapters.size(), waiting);
    last_batch_time_.resize(state_.adapters.size(), 0.0);
    released_.resize(state_.adapters.size(), false);
    if (!parts_.mpi.is_root()) return;
    metrics_.add_adapters();
    work_.add_adapters();
    progress_.add_adapters();
    records_.add_adapters();
    for (std::size_t i = known; i < state_.adapters.size(); ++i) {
        make_directory(parts_.job.run.dir + "/adapters/" + parts_.job.adapters[i].name);
    }
}

}  // namespace loratrain
