#pragma once

#include <map>
#include <set>
#include <vector>

#include "train/worker.h"

namespace loratrain {

/// Keeps the best state of each adapter (eval.keep_best) in adapters/<name>/best/. Adapters train
/// on while they are evaluated, so the evaluated parameters are kept until it is known whether they
/// are the best.
class BestService : public Service {
  public:
    explicit BestService(Worker& worker) : worker_(worker) {}

    /// Asks ranks for copies of parameters that are evaluated before the next window.
    bool change(const Progress& planned, StreamChange& change) override;
    void on_part(const PartKey& key, AdapterParts::ByRank& values) override;
    /// The evaluation after `step` steps has been judged.
    void on_evaluated(AdapterId adapter, std::int32_t step);

    /// `state` is the adapter's best so far.
    void found(AdapterId adapter, const AdapterState& state);
    /// The state after `step` steps is the best, and its files are not written yet.
    bool is_best(AdapterId adapter, std::int32_t step) const;
    /// Keeps these parameters on rank 0.
    void keep(const AdapterAtStep& which, AdapterParts::ByRank values);
    /// Writes all best states that can be written, in the order in which they were found. A
    /// checkpoint that is being written gets the states of its round first. Parameters that were
    /// not kept are fetched if the pipeline is empty.
    void write(bool pipeline_is_empty);
    /// All best states that the current checkpoint needs are written.
    bool written_for_checkpoint() const;

  private:
    struct Best {
        AdapterId adapter{};
        AdapterState state;  ///< with best_step, best_eval_loss
    };

    void write(const Best& best);
    void fetch(const Best& best);

    Worker& worker_;
    std::vector<Best> bests_;  ///< whose files are not written yet
    /// Parameters that are the best or may be.
    std::map<AdapterAtStep, AdapterParts::ByRank> kept_;
    std::set<AdapterAtStep> asked_;  ///< parameters that ranks may send
    bool writing_ = false;
};

}  // namespace loratrain
