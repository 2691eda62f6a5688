#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/threads.h"
#include "train/run_ledger.h"
#include "train/stream_trainer.h"
#include "train/trainer_parts.h"
#include "train/worker_ranks.h"

namespace loratrain {

struct Services;

/// State that the services of a worker share. Rank 0 of a worker only.
struct Worker : RunLedger {
    /// The arguments outlive it.
    Worker(const RunParts& parts, WorkerRanks& ranks);

    const AdapterState& state(AdapterId adapter) const { return adapters[adapter].state; }
    const AdapterJob& job(AdapterId adapter) const { return parts.job.adapter(adapter); }
    std::int32_t total_steps(AdapterId adapter) const {
        return parts.plan.adapters[index(adapter)].total_steps;
    }
    /// True if this worker trains all of the run and shares this ledger with the dispatcher. False
    /// for one of several workers.
    bool is_joint() const { return parts.dispatcher == nullptr; }

    /// What goes on beside files that are written on threads of their own: training, as long as
    /// some adapter has steps to come here, and always of other workers, which may be on this host.
    Beside beside_files() const;

    /// Why the worker has to stop now; "" = go on. Time limits count only after this start has
    /// trained something.
    std::string reason_to_stop();

    /// Whether ranks have the adapter's state in memory.
    bool holds(AdapterId adapter) const;
    std::vector<AdapterId> held() const;
    /// Frees the memory of adapters that have ended.
    void release(const std::vector<AdapterId>& adapters);

    /// True if adapters may come and go without draining the pipeline. False
    /// - for a run that may be redeployed;
    /// - for texts of trials, whose weights may not be kept later;
    /// - for texts on workers that report ends.
    bool changes_in_stream() const;
    /// Whether trials may end at rungs, and others take their places, without draining the
    /// pipeline.
    bool searches_in_stream() const { return adapters.has_rungs() && changes_in_stream(); }
    /// Whether the pipeline drains when an adapter ends: adapters may still come, and they come and
    /// go only with an empty pipeline.
    bool ends_need_drain() const;

    const RunParts& parts;
    WorkerRanks& ranks;
    StreamTrainer stream;
    int signal = 0;  ///< the first signal that came to any rank; 0 = none

    // Values of the current stream.
    bool copies_fit = false;       ///< host memory holds copies of everything a checkpoint keeps
    std::int32_t fixed_end = 0;    ///< the stream ends before this round, whoever trains
    Services* services = nullptr;  ///< set by Services
};

}  // namespace loratrain
