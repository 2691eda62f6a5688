#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "plan/pack/pack_microbatches.h"
#include "plan/replica_view.h"
#include "plan/schedule/plan_window.h"

namespace loratrain {

/// Microbatches of blocks, by their first round and their rounds: streams from the same state that
/// share them pack each block once. Of one replica.
using PackedBlocks = std::map<std::pair<std::int32_t, std::int32_t>, std::vector<Microbatch>>;

/// The schedule of training from one empty pipeline to the next, in windows, between which adapters
/// may come and go. Rounds are packed in blocks (pack_microbatches.h) so that batches of
/// neighbouring rounds can share microbatches; a block ends where run round numbers are multiples
/// of rounds_per_block(), eval.every_steps or checkpoint.every_steps, and where an adapter has its
/// last step or a stop of Progress. So which samples share a microbatch depends on the job, the
/// plan, the adapters and their steps, but neither on where windows are cut nor on where a stream
/// begins, if that is at the end of a block. Pure and deterministic; every window is checked
/// (check_window.h) before return. What has ended is forgotten, however long the stream.
///
/// With several replicas each round's samples are dealt to them (dispatch.h), and each packs what
/// it gets.
/// With Evaluations::due the adapters that train are evaluated where run round numbers are
/// multiples of eval.every_steps, and each where it ends: one after the other behind the block,
/// those first whose last microbatch came first, while what others trained before and train next is
/// under way. Trials that come to rungs (Progress) are evaluated before those, packed together, on
/// the first sweep.rung_eval_samples, unless all are evaluated then.
class ScheduleStream {
  public:
    enum class Evaluations : std::uint8_t { none, due };

    /// From the state `start`; the arguments are kept by reference, `start` is copied. `threads`:
    /// for packing; results do not depend on it. `packed`, which outlives the stream: of streams
    /// with the same arguments, none of which grows.
    ScheduleStream(const Job& job, const Plan& plan, std::span<const DatasetInfo> datasets,
                   const Progress& start, int threads = 1,
                   Evaluations evaluations = Evaluations::none, PackedBlocks* packed = nullptr);
    ~ScheduleStream();
    ScheduleStream(const ScheduleStream&) = delete;
    ScheduleStream& operator=(const ScheduleStream&) = delete;

    /// Whole blocks until at least `rounds` rounds (none when that is 0) or until every adapter is
    /// at its end; exactly `rounds` with `cut_block`. The window drains with `drain`; nothing may
    /// follow then.
    JointWindow next(std::int32_t rounds, bool drain, bool cut_block = false);

    /// From the round that next() begins with on, the adapter trains as well; with Evaluations::due
    /// it is evaluated before, where it has taken no step and that is not known. It must have steps
    /// left, and rounds must follow.
    void begin(AdapterId adapter, bool is_evaluated = false);
    /// From then on it is not trained any more; with Evaluations::due it is evaluated behind the
    /// others' next block, whose forwards need not wait for its last backward, unless it was at the
    /// end of the round before. Rounds must follow.
    void end(AdapterId adapter);
    /// The same, for now or for ever, without an evaluation.
    void pause(AdapterId adapter);
    /// From then on blocks end, and trials are evaluated, at these stops and rungs.
    void stop_at(const Progress& stops);

    /// The next window goes on until the last stage has computed the evaluations of these adapters
    /// behind its last block, and those of trials at rungs: who decides by them what follows need
    /// not wait for the window behind.
    void await(std::vector<AdapterId> adapters);

    /// Job and plan have got more adapters, and datasets, at their ends: they do not train before
    /// begin(). `datasets`: those of the job now, kept by reference.
    void grow(std::span<const DatasetInfo> datasets);

    /// Where next() begins: rounds and steps that are scheduled.
    const Progress& progress() const;
    std::int32_t round() const { return progress().round; }

    /// Of all blocks so far.
    const FillingCounts& fillings() const;

    /// Batches, microbatches and lists of them that it keeps, those of adapters included.
    std::size_t size() const;

  private:
    struct State;
    std::unique_ptr<State> state_;
};

/// What decides the packing of a replica.
PackRules pack_rules(const Job& job, const ReplicaView& view, int threads);
/// What decides its share of the samples: the same, but for recomputation, which takes time.
PackRules dispatch_rules_of(const Job& job, const ReplicaView& view);

/// Rounds that are packed together: 1 with one stage, several replicas or another policy than
/// balanced; else as many
/// as it takes for about eight microbatches per stage, at most 32. A round has as many adapters as
/// are admitted from the start (admission.h), those added since included.
std::int32_t rounds_per_block(const Job& job, const Plan& plan,
                              std::span<const DatasetInfo> datasets);
/// The same where these adapters are admitted, of a plan without memory.
std::int32_t rounds_per_block(const Job& job, const Plan& plan,
                              std::span<const DatasetInfo> datasets,
                              std::span<const AdapterId> admitted);

}  // namespace loratrain
