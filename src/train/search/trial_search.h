#pragma once

#include <string>
#include <vector>

#include "io/run_files/results_file.h"
#include "plan/rungs.h"
#include "train/adapter_table.h"

namespace loratrain {

/// The objective of an adapter's last evaluation, of a pruned trial that of the rung where it was
/// pruned; lower is better; infinite without one.
double objective_of(const SweepJob& sweep, const AdapterState& adapter);

/// The trials of a dataset, best first (plan/rungs.h).
std::vector<TrialStanding> standings(const Job& job, const AdapterTable& adapters,
                                     DatasetId dataset);

/// Ends trials early by the rules of plan/rungs.h, in the adapter table: those that come to a rung
/// are parked, and go on or are pruned as soon as that is sure. It keeps nothing itself, so that it
/// goes on from what checkpoints and sweep/state.json hold. Rank 0 only.
class TrialSearch {
  public:
    /// The arguments outlive it.
    TrialSearch(const Job& job, AdapterTable& adapters) : job_(job), adapters_(adapters) {}

    /// Trials may end before their last step.
    bool active() const {
        return job_.sweep && job_.sweep->scheduler != TrialScheduler::none && job_.sweep->rungs > 1;
    }
    /// Halving: those that wait for a decision and may train on meanwhile, the likeliest to go on
    /// first: they hold a place of the next rung so far. If one is pruned, what it came to beyond
    /// its rung counts for nothing but its metrics; none ends without a decision. So survivors are
    /// the same as without speculation. None on workers.
    std::vector<AdapterId> speculation() const;
    /// Those of `trained` that are at a rung before their end and still train.
    std::vector<AdapterId> at_rung(const std::vector<AdapterId>& trained) const;
    /// They have been evaluated there: parks them, or judges them at once.
    void arrived(const std::vector<AdapterId>& trials);
    /// Promotes and prunes whom it can among the parked; also after a trial has ended otherwise.
    void judge();

  private:
    void note_value(AdapterId trial, double value);
    void judge_dataset(DatasetId dataset);
    std::string tie_text(const std::vector<AdapterId>& trials,
                         const std::vector<TrialRecord>& records,
                         const std::vector<RungDecision>& decisions, std::size_t pruned) const;
    void promote(AdapterId trial);
    void prune(AdapterId trial, const std::string& why);
    std::vector<AdapterId> trials_of(DatasetId dataset) const;

    const Job& job_;
    AdapterTable& adapters_;
};

struct TrialEntry {
    AdapterId trial{};
    TrialResult result;
};

/// What results.csv says of the trials of a job with a sweep, those of each dataset best first.
std::vector<TrialEntry> trial_results(const Job& job, const AdapterTable& adapters);

}  // namespace loratrain
