#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "plan/pack/pack_microbatches.h"
#include "plan/pack/pack_shares.h"
#include "plan/replica_view.h"
#include "plan/schedule/plan_window.h"

namespace loratrain {

/// What is packed already. Streams from the same state that share it pack nothing twice.
struct PackedBlocks {
    /// Of one replica: microbatches of blocks by (first round, rounds).
    std::map<std::pair<std::int32_t, std::int32_t>, std::vector<Microbatch>> blocks;
    std::map<std::int32_t, PackedShares> rounds;  ///< of several replicas
};

/// The schedule of training from one empty pipeline to the next, window by window. Adapters may
/// come and go between windows. Deterministic; every window is checked (check_window.h) before
/// return. Batches and microbatches that have ended are forgotten, however long the stream.
///
/// - Packing: rounds are packed in blocks (pack_microbatches.h), so that batches of neighbouring
///   rounds can share microbatches. A block ends at rounds that are multiples of
///   rounds_per_block(), eval.every_steps or checkpoint.every_steps, and where an adapter has its
///   last step, a stop (Progress) or steps that are a multiple of export.every_steps. So
///   microbatches depend on the job, the plan, the adapters and their steps, but not on where
///   windows are cut, nor on where a stream begins, if that is the end of a block.
/// - Several replicas: each round's samples are dealt to them (sample_dispatch.h); each replica
/// packs its
///   share.
/// - Evaluations::due: all adapters that train are evaluated at rounds that are multiples of
///   eval.every_steps, and each adapter at its end. Evaluations follow the block, one after the
///   other, adapters whose last microbatch came first before the others, while training goes on.
///   Trials at rungs (Progress) come before them, packed together, on the first
///   sweep.rung_eval_samples, unless all adapters are evaluated then.
class ScheduleStream {
  public:
    enum class Evaluations : std::uint8_t { none, due };

    /// Begins at `start`, which is copied; all other arguments outlive the stream. `threads`: for
    /// packing; results do not depend on it. `packed`: shared by streams with the same arguments,
    /// none of which grows.
    ScheduleStream(const Job& job, const Plan& plan, std::span<const DatasetInfo> datasets,
                   const Progress& start, int threads = 1,
                   Evaluations evaluations = Evaluations::none, PackedBlocks* packed = nullptr);
    ~ScheduleStream();
    ScheduleStream(const ScheduleStream&) = delete;
    ScheduleStream& operator=(const ScheduleStream&) = delete;

    /// The next window: whole blocks with at least `rounds` rounds together (0 = no block), fewer
    /// if every adapter has ended; exactly `rounds` with `cut_block`. With `drain` the window
    /// drains and is the last one.
    JointWindow next(std::int32_t rounds, bool drain, bool cut_block = false);

    /// The adapter trains from the next window on. With Evaluations::due it is evaluated first if
    /// it has taken no step and `is_evaluated` is false. It has to have steps left, and rounds have
    /// to follow.
    void begin(AdapterId adapter, bool is_evaluated = false);
    /// The adapter does not train from the next window on. With Evaluations::due it is evaluated
    /// after the next block of the others, whose forwards need not wait for its last backward,
    /// unless it was evaluated at the end of the round before. Rounds have to follow.
    void end(AdapterId adapter);
    /// The adapter does not train from the next window on, for a while or for ever, and is not
    /// evaluated.
    void pause(AdapterId adapter);
    /// From the next window on blocks end, and trials are evaluated, at these stops and rungs.
    void stop_at(const Progress& stops);
    /// The next window ends after the last stage has computed the evaluations of these adapters
    /// after its last block, and those of trials at rungs, so that decisions by them need not wait
    /// for a later window.
    void await(std::vector<AdapterId> adapters);

    /// Job and plan have got more adapters and datasets at their ends. They do not train before
    /// begin(). `datasets`: all of the job now; they outlive the stream.
    void grow(std::span<const DatasetInfo> datasets);

    /// Rounds and steps that are scheduled: where next() begins.
    const Progress& progress() const;
    std::int32_t round() const { return progress().round; }

    /// How all blocks so far were filled.
    const FillingCounts& fillings() const;

    /// Number of entries that it keeps in memory.
    std::size_t size() const;

  private:
    struct State;
    std::unique_ptr<State> state_;
};

/// Rules of the replica's packing.
PackRules pack_rules(const Job& job, const ReplicaView& view, int threads);
/// Rules of the replica's share of samples: pack_rules() with the time of recomputation.
PackRules dispatch_rules_of(const Job& job, const ReplicaView& view);

/// Rounds of a packing block: 1 with one stage, several replicas, another policy than balanced or a
/// dataset that grows; else as many as give about eight microbatches per stage, at most 32. A round
/// counts the adapters that are admitted from the start (admission.h), with those added since.
std::int32_t rounds_per_block(const Job& job, const Plan& plan,
                              std::span<const DatasetInfo> datasets);
/// The same for given adapters, without a check of memory.
std::int32_t rounds_per_block(const Job& job, const Plan& plan,
                              std::span<const DatasetInfo> datasets,
                              std::span<const AdapterId> admitted);

}  // namespace loratrain
