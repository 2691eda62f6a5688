#include "train/worker.h"

#include <algorithm>

#include "train/orders/stop_request.h"

namespace loratrain {

Worker::Worker(const RunParts& run, WorkerRanks& of_worker)
    : RunLedger(run.job, run.plan, run.datasets, of_worker.count(), run.view),
      parts(run),
      ranks(of_worker),
      stream(run, adapters, of_worker, journal) {
    if (run.sampler != nullptr) journal.sample_with(*run.sampler);
}

Beside Worker::beside_files() const {
    const std::vector<AdapterId> all = adapters.all();
    const bool trains_on = std::any_of(all.begin(), all.end(), [this](AdapterId a) {
        return adapters[a].owned && is_unfinished(state(a).status) && adapters.steps_to_come(a) > 0;
    });
    return trains_on || !is_joint() ? Beside::training : Beside::nothing;
}

std::string Worker::reason_to_stop() {
    signal = std::max({signal, stop_signal(), ranks.reported_signal()});
    return parts.stop.reason(signal, adapters.round(), stream.batches_done() > 0);
}

bool Worker::holds(AdapterId adapter) const {
    const Residence residence = ranks.residence(adapter);
    return residence == Residence::resident || residence == Residence::suspended;
}

std::vector<AdapterId> Worker::held() const {
    std::vector<AdapterId> adapters_held = adapters.all();
    std::erase_if(adapters_held, [this](AdapterId a) { return !holds(a); });
    return adapters_held;
}

void Worker::release(const std::vector<AdapterId>& ended) {
    for (const AdapterId a : ended) {
        if (!is_unfinished(state(a).status) && holds(a)) ranks.order(ReleaseAdapter{a});
    }
    ranks.perform_ordered();
}

bool Worker::changes_in_stream() const {
    return !(sweep.records_ends() && parts.job.eval.generate.wanted()) && !parts.redeploys;
}

bool Worker::ends_need_drain() const {
    return adapters.any_may_come() && !changes_in_stream();
}

}  // namespace loratrain
