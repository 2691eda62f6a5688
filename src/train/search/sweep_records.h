#pragma once

#include <set>
#include <string>
#include <vector>

#include "train/search/trial_search.h"

namespace loratrain {

/// The files of a sweep: its state and its best trial.

/// Reason of trials that end because the sweep's budget is spent.
std::string budget_text(const SweepJob& sweep);

/// Records of a sweep in the run directory:
/// - sweep/state.json: results of trials that have ended, which no start of the run trains again;
/// - sweep/best.yaml: a job that trains the best trial of every dataset;
/// - exports: those that sweep.export asks for.
/// In a run by workers it records all adapters that have ended, without a sweep in
/// ckpt/ended.json. For other runs it does nothing. Rank 0 only.
class SweepRecords {
  public:
    /// The arguments outlive it.
    SweepRecords(const Job& job, AdapterTable& adapters) : job_(job), adapters_(adapters) {}

    /// Takes ended trials, values at rungs and decisions from state.json into the table, whose
    /// checkpoint may be older.
    void recall();

    /// True if a complete adapter is exported: every adapter that is no trial, and the trials that
    /// sweep.export asks for now that this one has ended.
    bool is_wanted(AdapterId adapter) const;
    /// `ended` trials are exported or not wanted: removes exports that are no longer among the
    /// best, and writes both files. Also called if only rungs have changed.
    void update(const std::vector<AdapterId>& ended);
    bool has_recorded(AdapterId ended) const { return recorded_.contains(ended); }
    /// The adapter's end is recorded here; no checkpoint has to keep it.
    bool records(AdapterId adapter) const;
    /// Ends of some adapters are recorded here.
    bool records_ends() const { return job_.sweep || job_.parallel.by_workers(); }

    /// Leaderboard: per dataset the base, the reference and the best trials; "" without a sweep.
    static std::string leaderboard(const Job& job, const AdapterTable& adapters);

  private:
    std::set<AdapterId> best_trials() const;
    std::string state_path() const;
    void recall_rungs(AdapterId trial, const AdapterState& from);
    void forget_unjudged_ahead(AdapterId trial, AdapterState& state) const;
    void take_back_exports();
    void write_done(AdapterId trial) const;
    void write_state() const;
    void write_best() const;
    std::string folder_of(AdapterId adapter) const;

    const Job& job_;
    AdapterTable& adapters_;
    std::set<AdapterId> recorded_;  ///< ended trials whose folders are up to date
};

}  // namespace loratrain
