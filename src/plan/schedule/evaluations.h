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

/// Evaluations: when they are due, their batches and microbatches.

/// A group of samples (AdapterPlan::group_samples) to be packed.
struct PackItem {
    AdapterId adapter{};
    std::int32_t step = 0;
    std::vector<SampleRef> samples;
    std::int64_t tokens() const;
};

/// Packs items into microbatches of about equal tokens, for evaluations (training:
/// plan/pack/pack_microbatches.h). LPT: the longest item first, into the lightest microbatch, with
/// more microbatches until none exceeds `capacity`; at least min(items, at_least) of them, and not
/// fewer than first-fit needs. Every item has to fit into `capacity` alone; items of one adapter
/// are adjacent and belong to one step. Segments and samples keep the order of the items;
/// microbatches are ordered by their first item.
std::vector<Microbatch> pack_items(std::span<const PackItem> items, std::int64_t capacity,
                                   std::int64_t at_least);

/// An evaluation of an adapter whose dataset has eval samples, after `step` of its steps.
struct DueEvaluation {
    AdapterId adapter{};
    std::int32_t step = 0;
    std::int32_t round = 0;
};

/// True if all adapters that train are evaluated before the round (eval.every_steps).
bool all_are_evaluated(const Job& job, std::int32_t round);

bool has_eval_samples(const Job& job, std::span<const DatasetInfo> datasets, AdapterId adapter);

/// The datasets with their first `most` eval samples only, in whole groups.
std::vector<DatasetInfo> first_eval_samples(std::span<const DatasetInfo> datasets,
                                            std::int64_t most);

/// The datasets with all samples as eval samples: first the training ones, then the eval ones.
std::vector<DatasetInfo> all_samples_as_eval(std::span<const DatasetInfo> datasets);

/// The batch of an evaluation, without its microbatches.
BatchPlan evaluation_batch(const Job& job, std::span<const DatasetInfo> datasets,
                           const DueEvaluation& due);

/// All eval samples of the adapter, as a batch to pack.
PendingBatch evaluation_samples(const Job& job, const Plan& plan,
                                std::span<const DatasetInfo> datasets, const DueEvaluation& due);

/// Microbatches of evaluations that are packed together; at least `at_least` if there are as many
/// samples.
std::vector<Microbatch> evaluation_microbatches(const Round& samples, std::int64_t capacity,
                                                std::int64_t at_least);

/// Appends microbatches of the window's batches from `first_batch` on. Fills the batches' places
/// and padding, and the microbatches' LoRA columns.
void append_microbatches(const Job& job, const ReplicaView& view, std::size_t first_batch,
                         std::vector<Microbatch> microbatches, Window& window);

/// Evaluations of a stream (ScheduleStream): adapters before their first step, at their end, and
/// all of them every eval.every_steps rounds; trials at rungs. Adds their batches and microbatches
/// to a window.
class StreamEvaluations {
  public:
    /// What it needs of the stream. All outlive it.
    struct Stream {
        const Job& job;
        const Plan& plan;
        const std::span<const DatasetInfo>& datasets;
        const Progress& progress;                   ///< rounds and steps scheduled so far
        std::span<const PackRules> dispatch_rules;  ///< per replica
    };

    explicit StreamEvaluations(const Stream& stream);

    /// The adapter, if it has eval samples, is evaluated before the next block.
    void add_coming(AdapterId adapter);
    /// The adapter, if it has eval samples, is evaluated after the next block.
    void add_going(AdapterId adapter);
    bool any_come_or_go() const { return !coming_.empty() || !going_.empty(); }
    /// The end of the next window waits for evaluations of these adapters, and for those at rungs.
    void await(std::vector<AdapterId> adapters) { awaited_ = std::move(adapters); }

    /// Adds evaluations of coming adapters. Rounds have to follow if there are any.
    void begin_window(JointWindow& joint);
    /// Adds evaluations that are due after a block: the window's batches from `first_batch` on.
    void evaluate_behind_block(std::size_t first_batch, JointWindow& joint);
    /// Adds evaluations of adapters that go.
    void evaluate_going(JointWindow& joint);
    /// Per replica: microbatches of the stream up to the last evaluation that is awaited.
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
    std::vector<AdapterId> at_rungs_;  ///< trials at rungs after the last block
};

}  // namespace loratrain
