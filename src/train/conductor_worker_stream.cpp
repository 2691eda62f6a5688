#include <algorithm>

#include "plan/schedule/admission.h"
#include "train/conductor.h"

/// On a worker, while its stream goes on: trials leave it at rungs, and go on when the desk has
/// judged them; what has ended is told, and what is given comes when there is room. What else the
/// desk orders needs an empty pipeline.

namespace loratrain {

/// Who has not begun is taken, and verdicts are; where anything else has come since
/// desk_wants_drain() was asked, all waits for the next window.
void Conductor::obey_in_stream() {
    if (desk_wants_drain()) return;
    while (const std::optional<DeskOrders> orders = parts_.desk->next()) {
        for (const AdapterNews& news : orders->news) take_news(news);
        for (const GivenAdapter& given : orders->given) {
            if (given.worker == parts_.desk->worker()) take_over(given);
        }
    }
}

/// Those that come to rungs leave; the others need not wait for what they have come to.
void Conductor::park_in_stream(const Progress& planned, StreamChange& change) {
    for (const auto& [a, begin] : begun_) {
        AdapterState& state = adapters_[a].state;
        if (state.status != AdapterStatus::running || !comes_to_rung(a, planned.round)) continue;
        pause(a, planned, change);
        state.status = AdapterStatus::parked;
        parked_.insert(a);
    }
}

/// Those whose evaluations there have come.
void Conductor::tell_parked() {
    std::vector<AdapterId> arrived(parked_.begin(), parked_.end());
    std::erase_if(arrived, [this](AdapterId a) { return steps_left(a) > 0 || !is_evaluated(a); });
    if (arrived.empty()) return;
    journal_.flush();
    for (const AdapterId a : arrived) {
        parts_.desk->tell(a, adapters_[a].state, true);
        parked_.erase(a);
    }
    parts_.desk->send();
}

/// Those that are exported or are not to be.
void Conductor::tell_ends_in_stream() {
    std::vector<AdapterId> ended = adapters_.all();
    std::erase_if(ended, [this](AdapterId a) {
        const AdapterState& state = adapters_[a].state;
        if (!has(a) || is_unfinished(state.status) || told_.contains(a)) return true;
        return waits_for_files(a);
    });
    if (ended.empty()) return;
    journal_.flush();
    tell_ends(ended);
}

}  // namespace loratrain
