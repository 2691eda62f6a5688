#pragma once

#include <array>
#include <cstdint>
#include <limits>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "config/job.h"
#include "plan/cost/cost_model.h"
#include "plan/pack/pack_batch.h"
#include "plan/plan.h"

namespace loratrain {

/// Packs the samples of a block of rounds into microbatches.

/// How policy `balanced` has filled the microbatches of a block (pack_variants.h).
enum class Filling : std::uint8_t {
    filled,    ///< pack_greedy, portions merged
    fewest,    ///< pack_fewest (MILP), portions merged
    evened,    ///< pack_evened
    streamed,  ///< pack_stream
    in_turn,   ///< pack_mlora
    improved,  ///< one of the others, changed by improve_packing
};

/// Number of blocks by Filling. Other policies than `balanced` are not counted.
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
    /// Samples that share a microbatch: AdapterPlan::group_samples, or all (packed_samples()).
    std::int32_t group_samples = 1;
};

/// Every active adapter's next optimizer step; at most one batch per adapter.
using Round = std::vector<PendingBatch>;

/// Everything that a packing depends on, except the samples.
struct PackRules {
    SchedulePolicy policy = SchedulePolicy::balanced;
    Packing packing = Packing::milp;
    std::int64_t capacity = 0;  ///< most tokens of a microbatch
    /// bucketed: no sample is padded from at most so many tokens to more.
    std::int32_t short_length = std::numeric_limits<std::int32_t>::max();
    std::vector<StagePlan> stages;
    std::int32_t tensor = 1;  ///< lanes of a stage
    std::int32_t max_in_flight = 1;
    AttentionSpan span;
    CostModel costs;  ///< built in, never measured: packings must repeat after a resume
    Recompute recompute = Recompute::none;
    double solver_seconds = 10.0;  ///< safety limit of one MILP
    int threads = 1;               ///< the result does not depend on it
    bool rough = false;            ///< balanced: compare a tenth of the packings
    /// balanced: changes of the best packing that are tried per group of samples; fewer in large
    /// blocks (improve_packing()).
    std::int32_t changes_per_item = 0;
};

/// Packs a block of consecutive rounds: decides which samples share a microbatch, and the order of
/// the microbatches. `rounds` are in training order; an adapter's steps ascend from round to round;
/// every group of samples has 1 <= tokens <= capacity, also with padding. "Samples" below are
/// groups, which are packed as one. The result depends on the arguments only, not on `threads`,
/// unless a solve reaches solver_seconds.
///
/// - sequential: one adapter after another (all its rounds), first-fit in order.
/// - 1f1b: one adapter after another; a batch is cut into microbatches of equally many consecutive
///   samples, as large as fits `capacity`, at least min(samples, stages) of them (Megatron).
/// - mlora: in each round the adapters in turn, first-fit in order, one adapter per microbatch.
///   With fewer adapters L than stages D, batches are cut as by 1f1b into at least
///   ceil((D - 1) / (L - 1)) microbatches, D for one adapter (mLoRA section 3).
/// - balanced: the best of many packings by simulated time (pipeline_time.h): adapters are grouped
///   by head-tail pairing (portions() in pack_variants.h); pack_balanced.h has the ways compared.
///   With packing `bucketed`, lengths are padded first (length_buckets.h), round by round; a group
///   that would exceed the capacity then is not padded. Longrope's factors go by the length of a
///   sample: padding leaves it short or long (short_length()).
///
/// Result, in training order: every sample exactly once, a group in one microbatch; at most
/// `capacity` tokens; one segment per adapter, adapters ascending in a microbatch, samples in batch
/// order; every segment of (a, j) in an earlier microbatch than all of (a, j+1). check_packing()
/// proves it before return. `fillings` (may be null) counts the block.
std::vector<Microbatch> pack_microbatches(const PackRules& rules, std::span<const Round> rounds,
                                          FillingCounts* fillings = nullptr);

/// A block's packings, by the microbatches in flight that they are for.
using PackingsByDepth = std::map<std::int32_t, Bins>;

/// Simulated nanoseconds (pipeline_time.h) of the block's microbatches in a row of such blocks: the
/// mean of a few. One value for each of `timed`: a replica with its stages, costs, recomputation
/// and microbatches in flight, in ascending depths. The block is packed for the first and for the
/// last depth, and the shorter time counts. `known`: what was packed of it before by these rules;
/// takes what is packed now.
std::vector<double> block_times(const PackRules& rules, std::span<const PackRules> timed,
                                std::span<const Round> rounds, PackingsByDepth& known);

}  // namespace loratrain
