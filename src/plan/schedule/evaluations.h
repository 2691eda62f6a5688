#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "plan/pack/pack_microbatches.h"
#include "plan/plan.h"
#include "plan/replica_view.h"
#include "plan/schedule/plan_window.h"

namespace loratrain {

/// A group of samples (AdapterPlan::group_samples) waiting for its microbatch.
struct PackItem {
    AdapterId adapter{};
    std::int32_t step = 0;
    std::vector<SampleRef> samples;
    std::int64_t tokens() const;
};

/// Microbatches of about equal tokens, none above `capacity`, at least min(items, at_least) of them
/// and not fewer than first-fit needs: longest item first into the lightest microbatch (LPT),
/// with more microbatches until they fit. Every item must fit into `capacity` alone; items of one
/// adapter are adjacent and belong to one step. Segments and samples inside a microbatch keep the
/// order of the items; microbatches are numbered by their first item.
std::vector<Microbatch> pack_items(std::span<const PackItem> items, std::int64_t capacity,
                                   std::int64_t at_least);

/// An evaluation of an adapter whose dataset has eval samples, after so many of its steps.
struct DueEvaluation {
    AdapterId adapter{};
    std::int32_t step = 0;
    std::int32_t round = 0;
};

/// Of those that train then: eval.every_steps is due before the round.
bool all_are_evaluated(const Job& job, std::int32_t round);

bool has_eval_samples(const Job& job, std::span<const DatasetInfo> datasets, AdapterId adapter);

/// The datasets with no more eval samples than the first `most`, in whole groups, and no others.
std::vector<DatasetInfo> first_eval_samples(std::span<const DatasetInfo> datasets,
                                            std::int64_t most);

/// The datasets with all samples as eval samples: those to train on, then those to evaluate.
std::vector<DatasetInfo> all_samples_as_eval(std::span<const DatasetInfo> datasets);

/// Its batch, but for its microbatches.
BatchPlan evaluation_batch(const Job& job, std::span<const DatasetInfo> datasets,
                           const DueEvaluation& due);

/// All eval samples of the adapter, as a batch to be packed.
PendingBatch evaluation_samples(const Job& job, const Plan& plan,
                                std::span<const DatasetInfo> datasets, const DueEvaluation& due);

/// Microbatches of evaluations that are packed together, at least `at_least` where there are as
/// many samples.
std::vector<Microbatch> evaluation_microbatches(const Round& samples, std::int64_t capacity,
                                                std::int64_t at_least);

/// Appends microbatches of the window's batches from `first_batch` on and notes where those lie,
/// and as padding the rows that they train; the microbatches' columns as well.
void append_microbatches(const Job& job, const ReplicaView& view, std::size_t first_batch,
                         std::vector<Microbatch> microbatches, Window& window);

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
