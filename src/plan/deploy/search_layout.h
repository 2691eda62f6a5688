#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <vector>

#include "plan/deploy/candidates.h"
#include "plan/pack/pack_block.h"
#include "plan/plan.h"
#include "plan/plan_report.h"

namespace loratrain {

/// Plays a job's first rounds: its blocks, packed as they will be (but without MILP and without
/// small changes), by `costs`; at most 1024 samples for policy balanced, of large batches the first
/// ones. So the work is bounded, and results depend on the arguments alone, which outlive it.
class LayoutPlayer {
  public:
    LayoutPlayer(const Job& job, std::span<const DatasetInfo> datasets, const CostModel& costs)
        : job_(job), datasets_(datasets), costs_(costs) {}

    /// Plays the first block alone from now on.
    void play_one_block() { one_block_ = true; }

    /// Tokens a second of the only replica of a plan that is complete but for its memory. `rough`:
    /// of few packings.
    double speed(const Plan& plan, bool rough);
    /// Of plans that differ in the microbatches in flight, fewest first, and what memory leaves
    /// them: packed for the first and for the last of them, not for each.
    std::vector<double> speeds(std::span<const Plan> plans, bool rough = false);

  private:
    const std::vector<Round>& rounds_of(const Plan& plan);

    const Job& job_;
    std::span<const DatasetInfo> datasets_;
    const CostModel& costs_;
    bool one_block_ = false;
    std::map<std::vector<AdapterId>, std::vector<Round>> rounds_;  ///< of those admitted first
};

/// The speed of one plan.
double played_speed(const Job& job, const Plan& plan, std::span<const DatasetInfo> datasets,
                    const CostModel& costs);

/// Tokens a second of the whole job, as a dry run predicts them from 16 rounds at a time, but
/// without the shapes that are new to a stage, most of which a run meets before it begins. `plan`
/// has memory and costs.
double whole_job_speed(const Job& job, Plan plan, std::span<const DatasetInfo> datasets);

/// The fastest layout by simulation, and the sizes of microbatches that were compared.
struct FoundLayout {
    Candidate chosen;
    std::vector<LayoutTrial> trials;  ///< the taken one first; empty where there was no choice
};

/// Compares what the job leaves open, each layout with the adapters, the recomputed layers and the
/// activations on the host that it needs, by simulation (LayoutPlayer):
/// - sizes of microbatches: eighths of `usual` tokens from the longest sample on, and not below
///   2048 on CUDA or 512 on the CPU, where products would run slower than the costs say; the
///   largest that fit; around the best ones down to 64ths;
/// - no recomputation, also with layers moved to stages that have room (fit_layers.h), and
///   recomputation of the layers that do not fit;
/// - layers shared by neighbouring stages, or whole;
/// - microbatches in flight, from as many as stages to twice as many: the fewest within 1% of the
///   fastest. What is ready ahead of time fills the pauses that microbatches of unequal cost leave.
///   Where half of every rank's memory is left, half as many again, and beside other adapters at
///   least twice as many as stages, on the CPU four times: played are the first rounds, without
///   messages and jitter, and rounds of fewer adapters gain more.
/// Sizes and recomputation are compared roughly first, with as many in flight as stages; then the
/// best few with all that is left open. Nothing is compared where nothing is open, and of one stage
/// no smaller sizes where `first`, which fits, has the usual one without recomputation.
FoundLayout search_layout(const DeploymentInputs& inputs, const Candidates& candidates,
                          const Candidate& first);

/// The candidate with shared layers and the depth that search_layout() would give it.
Candidate laid_out(const DeploymentInputs& inputs, const Candidates& candidates,
                   const Candidate& sized);

/// Between depths that are looked at: of more than 16 stages so many that 16 are.
std::int32_t depths_apart(std::int32_t stages);

}  // namespace loratrain
