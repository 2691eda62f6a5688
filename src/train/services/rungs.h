#pragma once

#include <vector>

#include "train/worker.h"

namespace loratrain {

/// Trials of a sweep at rungs, while the stream goes on. They are evaluated behind the round that
/// brings them there. A joint run plans the next round when it is known what they come to, so that
/// who trains in which round does not depend on how long anything takes. At one of several workers
/// they leave the stream, and come again when the dispatcher has judged them.
class RungService : public Service {
  public:
    explicit RungService(Worker& worker) : worker_(worker) {}

    bool awaits_results(std::int32_t round) const override;
    bool needs_drain(std::int32_t round) override { return counts_other_samples(round); }
    bool change(const Progress& planned, StreamChange& change) override;
    void add_deciding(const Progress& planned, std::vector<AdapterId>& adapters) const override;

    /// With an empty pipeline: evaluates trials at rungs that the stream has not evaluated.
    void evaluate(const std::vector<AdapterId>& trials);

  private:
    bool judges() const { return worker_.adapters.has_rungs() && worker_.is_joint(); }
    bool counts_other_samples(std::int32_t round) const;
    void judge(std::int32_t round);
    void park(const Progress& planned, StreamChange& change);

    Worker& worker_;
};

}  // namespace loratrain
