#include "train/services/rungs.h"

#include <algorithm>

#include "plan/schedule/evaluations.h"
#include "train/services/services.h"

namespace loratrain {

/// A trial comes to a rung where all adapters are evaluated, by other samples than a rung counts:
/// it is evaluated with an empty pipeline.
bool RungService::counts_other_samples(std::int32_t round) const {
    if (!all_are_evaluated(worker_.parts.job, round)) return false;
    const std::vector<AdapterId> adapters = worker_.adapters.in_stream();
    return std::any_of(adapters.begin(), adapters.end(),
                       [&](AdapterId a) { return worker_.adapters.comes_to_rung(a, round); });
}

/// A trial comes to a rung with the round before, and its evaluation there has not come.
bool RungService::awaits_results(std::int32_t round) const {
    if (!judges() || counts_other_samples(round)) return false;
    const std::vector<AdapterId> adapters = worker_.adapters.in_stream();
    return std::any_of(adapters.begin(), adapters.end(), [&](AdapterId a) {
        const std::int32_t steps = worker_.adapters.steps_before(a, round);
        const bool ends = steps == worker_.total_steps(a) && worker_.adapters.ends_at_rungs(a);
        if (!worker_.adapters.comes_to_rung(a, round) && !ends) return false;
        const std::optional<std::int32_t> evaluated = worker_.adapters[a].stream.evaluated();
        return !evaluated || *evaluated < steps;
    });
}

void RungService::add_deciding(const Progress& /*planned*/,
                               std::vector<AdapterId>& adapters) const {
    if (!judges()) return;
    for (const AdapterId a : worker_.adapters.in_stream()) {
        if (worker_.adapters.ends_at_rungs(a)) adapters.push_back(a);
    }
}

bool RungService::change(const Progress& planned, StreamChange& change) {
    if (!worker_.searches_in_stream()) return true;
    if (judges()) {
        judge(planned.round);
    } else {
        park(planned, change);
    }
    return true;
}

/// Judges the trials that come to rungs with the round before; their evaluations have come.
void RungService::judge(std::int32_t round) {
    std::vector<AdapterId> arrived;
    for (const AdapterId a : worker_.adapters.in_stream()) {
        if (worker_.state(a).status != AdapterStatus::running) continue;
        if (worker_.adapters.comes_to_rung(a, round)) arrived.push_back(a);
        const bool ends =
            worker_.adapters.steps_to_come(a) == 0 && worker_.adapters.ends_at_rungs(a);
        if (ends) worker_.services->steps.decide_end(a);
    }
    worker_.services->dispatch.judge(arrived);
}

/// Those that come to rungs leave; the others need not wait for what they have come to.
void RungService::park(const Progress& planned, StreamChange& change) {
    for (const AdapterId a : worker_.adapters.in_stream()) {
        const bool running = worker_.state(a).status == AdapterStatus::running;
        if (!running || !worker_.adapters.comes_to_rung(a, planned.round)) continue;
        worker_.services->admission.pause(a, planned, change);
        worker_.adapters[a].state.status = AdapterStatus::parked;
        worker_.adapters[a].reports_rung = true;
    }
}

void RungService::evaluate(const std::vector<AdapterId>& trials) {
    std::vector<AdapterId> left = trials;
    const bool regular = all_are_evaluated(worker_.parts.job, worker_.adapters.round());
    std::erase_if(left, [&](AdapterId a) { return worker_.adapters.is_evaluated(a) && !regular; });
    if (left.empty()) return;
    worker_.services->evaluations.evaluate(left, worker_.parts.job.sweep->rung_eval_samples);
}

}  // namespace loratrain
