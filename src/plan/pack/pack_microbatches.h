#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "config/job.h"
#include "plan/cost/cost_model.h"
#include "plan/plan.h"

namespace loratrain {

/// How policy `balanced` fills the microbatches of a block (pack_variants.h).
enum class Filling : std::uint8_t {
    filled,    ///< pack_greedy, portions merged
    fewest,    ///< pack_fewest (MILP), portions merged
    evened,    ///< pack_evened
    streamed,  ///< pack_stream
    in_turn,   ///< pack_mlora
    improved,  ///< one of these, changed by improve_packing
};

/// Blocks by what they were filled by; those of other policies are not counted.
struct FillingCounts {
    std::array<std::int64_t, 6> blocks{};  ///< by Filling

    void add(Filling filling) { ++blocks[static_cast<std::size_t>(filling)]; }
    void add(const FillingCounts& other);
    std::int64_t all() const;
};

/// "14 blocks: 9 evened, 4 streamed, 1 filled"; "" without blocks.
std::string to_text(const FillingCounts& counts);

/// A global batch (adapter, step) before packing; samples in its order.
struct PendingBatch {
    AdapterId adapter{};
    std::int32_t step = 0;
    std::vector<SampleRef> samples;  ///< whole groups
    /// So many at a time are packed together: as AdapterPlan's, or all of them (packed_samples()).
    std::int32_t group_samples = 1;
};

/// Every active adapter's next optimizer step; at most one batch per adapter.
using Round = std::vector<PendingBatch>;

/// What decides a packing beside the samples.
struct PackRules {
    SchedulePolicy policy = SchedulePolicy::balanced;
    Packing packing = Packing::milp;
    std::int64_t capacity = 0;      ///< most tokens of a microbatch
    std::vector<StagePlan> stages;  ///< of the pipeline
    std::int32_t tensor = 1;        ///< lanes of a stage
    std::int32_t max_in_flight = 1;
    AttentionSpan span;
    CostModel costs;  ///< built in, never measured: packings must repeat after a resume
    Recompute recompute = Recompute::none;
    double solver_seconds = 10.0;  ///< safety limit of one MILP
    int threads = 1;               ///< the result does not depend on it
    bool rough = false;            ///< balanced: compare a tenth of the packings
    /// balanced: so many small changes of the best packing are tried for each group of samples,
    /// fewer in large blocks (improve_packing.h).
    std::int32_t changes_per_item = 0;
};

/// Which samples share a microbatch, and the order of the microbatches, for a block of consecutive
/// rounds. `rounds` in training order; steps of an adapter ascend from round to round; every group
/// of samples has 1 <= tokens <= capacity (padded ones too). What is said of samples below holds
/// for groups, which are packed as one. Depends on the arguments alone, `threads` excepted, unless
/// a solve runs into solver_seconds.
///
/// - sequential: one adapter after another (all its rounds), first-fit in order.
/// - 1f1b: one adapter after another; a batch is cut into microbatches of equally many consecutive
///   samples, as large as fits `capacity`, at least min(samples, stages) of them (Megatron).
/// - mlora: in each round the adapters in turn, first-fit in order, one adapter a microbatch. With
///   fewer adapters L than stages D, batches are cut as by 1f1b into at least
///   ceil((D - 1) / (L - 1)) microbatches, D for one adapter (mLoRA section 3).
/// - balanced: the best of many packings by simulated time (pipeline_time.h); see pack_balanced.h.
///   With packing `bucketed`, lengths are padded first (length_buckets.h), round by round: tokens
///   of the result are padded lengths, but in a group that would exceed the capacity then.
///
/// Result, in training order: every sample exactly once, groups in one microbatch; at most
/// `capacity` tokens; one segment per adapter, adapters ascending in a microbatch, samples in batch
/// order; every segment of (a, j) in an earlier microbatch than all of (a, j+1). Proved by
/// check_packing before return. `fillings`, where given, counts the block.
std::vector<Microbatch> pack_microbatches(const PackRules& rules, std::span<const Round> rounds,
                                          FillingCounts* fillings = nullptr);

/// Simulated nanoseconds that pack_microbatches's microbatches take (pipeline_time.h), where such
/// blocks follow each other: the mean of a few. For each of `timed`, of one replica in depths that
/// ascend, by its stages, costs, recomputation and microbatches in flight: of a block that is
/// packed for the first and for the last of these depths, whichever takes less.
std::vector<double> block_times(const PackRules& rules, std::span<const PackRules> timed,
                                std::span<const Round> rounds);

}  // namespace loratrain
