#pragma once

#include "train/adapter_table.h"
#include "train/records/journal.h"
#include "train/run_clock.h"
#include "train/search/sweep_records.h"
#include "train/search/trial_search.h"

namespace loratrain {

/// The adapters of a run as one process knows them, and what it writes down of them. A joint run
/// has one, which its worker and its dispatcher share. Of a run by several workers each has its
/// own, and so has the dispatcher. Rank 0 of a worker only.
struct RunLedger {
    /// `ranks`: those that train what the ledger has. The arguments outlive it.
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
