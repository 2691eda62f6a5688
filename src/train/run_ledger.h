#pragma once

#include "train/adapter_table.h"
#include "train/records/journal.h"
#include "train/search/sweep_records.h"
#include "train/search/trial_search.h"

namespace loratrain {

/// A process's knowledge of a run's adapters, and its records of them. In a joint run the worker
/// and the dispatcher share one ledger. With several workers each has its own, and so has the
/// dispatcher. Rank 0 of a worker only.
struct RunLedger {
    /// `ranks`: number of ranks that train its adapters. The arguments outlive the ledger.
    RunLedger(const Job& job, const Plan& plan, const std::vector<DatasetInfo>& datasets, int ranks,
              const StatusView& view)
        : adapters(job, plan, datasets),
          search(job, adapters),
          sweep(job, adapters),
          journal(job, plan, adapters, clock, ranks, view) {}
    RunLedger(const RunLedger&) = delete;
    RunLedger& operator=(const RunLedger&) = delete;

    RunState run_state() const { return adapters.state(clock.elapsed()); }

    RunClock clock;
    AdapterTable adapters;
    TrialSearch search;
    SweepRecords sweep;
    Journal journal;
};

}  // namespace loratrain
