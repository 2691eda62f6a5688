#pragma once

#include <set>
#include <string>
#include <vector>

#include "train/search/trial_search.h"

namespace loratrain {

/// Why the budget ends trials.
std::string budget_text(const SweepJob& sweep);

/// What a run with a sweep leaves besides its adapters: <run.dir>/sweep/state.json, what ended
/// trials came to, which no start of the run trains again; sweep/best.yaml, a job that trains the
/// best trial of every dataset; and of exports those that sweep.export asks for. Of a run by
/// workers it records all adapters that have ended, without a sweep in <run.dir>/ckpt/ended.json.
/// Does nothing for other runs. Rank 0 only.
class SweepRecords {
  public:
    /// The arguments outlive it.
    SweepRecords(const Job& job, AdapterTable& adapters) : job_(job), adapters_(adapters) {}

    /// Takes over what state.json knows and the table, from a checkpoint before it, does not:
    /// trials that have ended, values at rungs, decisions.
    void recall();

    /// Whether an adapter that is complete is to be exported: all but trials, and of these what
    /// sweep.export asks for now that it has ended.
    bool is_wanted(AdapterId adapter) const;
    /// Trials that have ended, and are exported or not wanted: takes back the weights of those that
    /// are not among the best any more, and writes both files. Also where only rungs have changed.
    void update(const std::vector<AdapterId>& ended);
    bool has_recorded(AdapterId ended) const { return recorded_.contains(ended); }
    /// The end of the adapter is recorded here, so that no checkpoint has to keep it.
    bool records(AdapterId adapter) const;
    /// Ends of some are.
    bool records_ends() const { return job_.sweep || job_.parallel.by_workers(); }

    /// The leaderboard: per dataset the base, the reference and the best; "" without a sweep.
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
    std::set<AdapterId> recorded_;  ///< ended trials whose folders are as they shall be
};

}  // namespace loratrain
