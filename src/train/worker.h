#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "train/run_ledger.h"
#include "train/stream_trainer.h"
#include "train/trainer_parts.h"
#include "train/worker_ranks.h"

namespace loratrain {

struct Services;

/// What the services of a worker share. Rank 0 of a worker only.
struct Worker : RunLedger {
    /// The arguments outlive it.
    Worker(const RunParts& parts, WorkerRanks& ranks);

    const AdapterState& state(AdapterId adapter) const { return adapters[adapter].state; }
    const AdapterJob& job(AdapterId adapter) const { return parts.job.adapter(adapter); }
    std::int32_t total_steps(AdapterId adapter) const {
        return parts.plan.adapters[index(adapter)].total_steps;
    }
    /// It trains all of the run, and shares this ledger with the dispatcher; else it is one of
    /// several workers.
    bool is_joint() const { return parts.dispatcher == nullptr; }

    /// Why the worker is to stop now; "" = go on. Time limits only count once this start has got
    /// further.
    std::string reason_to_stop();

    /// Ranks have a state of the adapter in memory.
    bool holds(AdapterId adapter) const;
    std::vector<AdapterId> held() const;
    /// Gives back the memory of those that have ended.
    void release(const std::vector<AdapterId>& adapters);

    /// Who trains may change while others train: nobody else has to know of an end before they
    /// train on. A run that may be deployed anew is so with the pipeline empty; so are texts
    /// written of trials, which may not be kept later, and on workers that report ends.
    bool changes_in_stream() const;
    /// Trials may end at rungs, and others take their places, while the stream goes on.
    bool searches_in_stream() const { return adapters.has_rungs() && changes_in_stream(); }
    /// An end makes room for an adapter that cannot come while others train.
    bool ends_need_drain() const;

    const RunParts& parts;
    WorkerRanks& ranks;
    StreamTrainer stream;
    int signal = 0;  ///< the first that came to any rank

    // Of the stream under way.
    bool copies_fit = false;     ///< the host has memory for copies of what a checkpoint keeps
    std::int32_t fixed_end = 0;  ///< the round before which it ends, whoever trains

    Services* services = nullptr;  ///< all of them; set by who makes them
};

}  // namespace loratrain
