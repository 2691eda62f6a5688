#pragma once

#include <string>
#include <vector>

#include "io/run_files/results_file.h"
#include "plan/rungs.h"
#include "train/adapter_table.h"

namespace loratrain {

/// Ends trials of a sweep early.

/// Objective of an adapter's last evaluation; for a pruned trial, of the evaluation at the rung
/// where it was pruned. Lower is better. Infinite without an evaluation.
double objective_of(const SweepJob& sweep, const AdapterState& adapter);

/// The trials of a dataset, best first (plan/rungs.h).
std::vector<TrialStanding> standings(const Job& job, const AdapterTable& adapters,
                                     DatasetId dataset);

/// Ends trials early by the rules of plan/rungs.h. It changes AdapterStatus in the table only: a
/// trial at a rung is `parked` until its decision is sure; then it is `waiting` (goes on) or
/// `pruned`. It has no state of its own, so that it continues from checkpoints and
/// sweep/state.json. Called by Dispatcher::judge() and Dispatcher::take(); train/services/rungs.h
/// says when, and what happens to a pruned trial. Rank 0 only.
class TrialSearch {
  public:
    /// The arguments outlive it.
    TrialSearch(const Job& job, AdapterTable& adapters) : job_(job), adapters_(adapters) {}

    /// Trials may end before their last step.
    bool active() const {
        return job_.sweep && job_.sweep->scheduler != TrialScheduler::none && job_.sweep->rungs > 1;
    }
    /// Halving: trials that wait for a decision and may train on meanwhile, the likeliest survivors
    /// first. If such a trial is pruned, its results after the rung appear in its metrics only, and
    /// none ends without a decision. So the survivors are the same as without speculation. Empty
    /// with several workers.
    std::vector<AdapterId> speculation() const;
    /// The trials of `trained` that are at a rung before their end and still train.
    std::vector<AdapterId> at_rung(const std::vector<AdapterId>& trained) const;
    /// `trials` were evaluated at their rungs: parks them, or judges them at once.
    void arrived(const std::vector<AdapterId>& trials);
    /// Promotes and prunes parked trials whose decision is sure. Also called after a trial has
    /// ended for another reason.
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

/// Rows of results.csv for the trials of a sweep: dataset by dataset, best first.
std::vector<TrialEntry> trial_results(const Job& job, const AdapterTable& adapters);

}  // namespace loratrain
