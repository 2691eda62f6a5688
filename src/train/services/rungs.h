#pragma once

#include <vector>

#include "train/worker.h"

namespace loratrain {

/// Trials of a sweep at rungs, during a stream. They are evaluated after the round that brings them
/// to a rung.
/// - A joint run judges them (Dispatcher::judge, by TrialSearch) before it plans the next round, so
///   that who trains in which round does not depend on timing. A pruned trial leaves the stream in
///   AdmissionService::change and is exported as any adapter that has ended.
/// - At one of several workers they leave the stream, and come again when the dispatcher has judged
///   them.
class RungService : public Service {
  public:
    explicit RungService(Worker& worker) : worker_(worker) {}

    bool awaits_results(std::int32_t round) const override;
    bool needs_drain(std::int32_t round) override { return counts_other_samples(round); }
    bool change(const Progress& planned, StreamChange& change) override;
    void add_deciding(const Progress& planned, std::vector<AdapterId>& adapters) const override;

    /// With an empty pipeline: evaluates trials that the stream has not evaluated at their rung.
    void evaluate(const std::vector<AdapterId>& trials);

  private:
    bool judges() const { return worker_.adapters.has_rungs() && worker_.is_joint(); }
    bool counts_other_samples(std::int32_t round) const;
    void judge(std::int32_t round);
    void park(const Progress& planned, StreamChange& change);

    Worker& worker_;
};

}  // namespace loratrain
