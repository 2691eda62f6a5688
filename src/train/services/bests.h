#pragma once

#include <map>
#include <vector>

#include "train/worker.h"

namespace loratrain {

/// The best state of each adapter (eval.keep_best), adapters/<name>/best/. An adapter trains on
/// while it is evaluated: its parameters are kept as they were evaluated until it is known whether
/// they are the best.
class BestService : public Service {
  public:
    explicit BestService(Worker& worker) : worker_(worker) {}

    /// Asks for parameters as they are evaluated before the next window.
    bool change(const Progress& planned, StreamChange& change) override;
    void on_part(const PartKey& key, AdapterParts::ByRank& values) override;
    /// The evaluation behind so many steps has been judged.
    void on_evaluated(AdapterId adapter, std::int32_t step);

    /// An evaluation has found the adapter's best state so far: `state`.
    void found(AdapterId adapter, const AdapterState& state);
    /// That was found behind so many steps, and its files are not written yet.
    bool is_best(AdapterId adapter, std::int32_t step) const;
    /// Parameters of the adapter after so many steps, on rank 0.
    void keep(const AdapterAtStep& which, AdapterParts::ByRank values);
    /// Writes what can be written, in the order in which it was found: a checkpoint that is being
    /// written gets those of its round first. What was not kept is fetched if the pipeline is
    /// empty.
    void write(bool pipeline_is_empty);
    /// None is to be written that the checkpoint which is being written has to have.
    bool written_for_checkpoint() const;

  private:
    struct Best {
        AdapterId adapter{};
        AdapterState state;  ///< as it was found: best_step, best_eval_loss
    };

    void write(const Best& best);
    void fetch(const Best& best);

    Worker& worker_;
    std::vector<Best> bests_;  ///< whose files are not written yet
    /// Parameters that may be or are the best.
    std::map<AdapterAtStep, AdapterParts::ByRank> kept_;
    bool writing_ = false;
};

}  // namespace loratrain
