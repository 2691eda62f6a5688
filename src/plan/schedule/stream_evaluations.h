#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "plan/pack/pack_block.h"
#include "plan/replica_view.h"
#include "plan/schedule/evaluations.h"
#include "plan/schedule/plan_window.h"

namespace loratrain {

/// What a stream evaluates, and behind what (ScheduleStream): adapters before their first step,
/// where they end, and all of them every eval.every_steps rounds; trials that come to rungs. Adds
/// their batches and microbatches to a window.
class StreamEvaluations {
  public:
    /// Of the stream; all outlive it.
    struct Stream {
        const Job& job;
        const Plan& plan;
        const std::span<const DatasetInfo>& datasets;
        const Progress& progress;                   ///< what it has scheduled
        std::span<const PackRules> dispatch_rules;  ///< of the replicas
    };

    explicit StreamEvaluations(const Stream& stream);

    /// Where it has eval samples, it is evaluated before the next block.
    void add_coming(AdapterId adapter);
    /// Behind it.
    void add_going(AdapterId adapter);
    bool any_come_or_go() const { return !coming_.empty() || !going_.empty(); }
    /// Whose evaluations at its end the next window's end waits for, besides those at rungs.
    void await(std::vector<AdapterId> adapters) { awaited_ = std::move(adapters); }

    /// Adds evaluations of those that come; rounds follow where there are any.
    void begin_window(JointWindow& joint);
    /// Adds what is due behind a block, of the window's batches from `first_batch` on.
    void evaluate_behind_block(std::size_t first_batch, JointWindow& joint);
    /// Adds evaluations of those that go.
    void evaluate_going(JointWindow& joint);
    /// Of each replica: microbatches of the stream up to the last evaluation that is awaited.
    std::vector<std::int32_t> end_window(const JointWindow& joint);

  private:
    bool evaluates(AdapterId adapter) const;
    std::int32_t awaited_forwards(const Window& window) const;
    std::vector<DueEvaluation> due_behind(std::size_t first_batch, const JointWindow& joint) const;
    std::vector<AdapterId> coming_to_rungs(std::size_t first_batch, const Window& window) const;
    void evaluate_at_rungs(JointWindow& joint) const;
    void evaluate(const DueEvaluation& due, JointWindow& joint) const;
    void evaluate_all(std::vector<AdapterId>& adapters, JointWindow& joint) const;
    void append(std::span<const DueEvaluation> together, std::span<const DatasetInfo> infos,
                bool for_all_stages, JointWindow& joint) const;

    Stream stream_;
    std::vector<ReplicaView> views_;
    std::vector<AdapterId> coming_;
    std::vector<AdapterId> going_;
    std::vector<AdapterId> awaited_;
    std::vector<AdapterId> at_rungs_;  ///< behind the last block
};

}  // namespace loratrain
