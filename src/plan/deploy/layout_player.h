#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <span>
#include <vector>

#include "plan/pack/pack_microbatches.h"
#include "plan/plan.h"
#include "plan/predict/predict.h"

namespace loratrain {

/// Simulates the first rounds of a job, to compare layouts by their tokens/s.

/// Rounds that whole_job_speed() simulates at a time, where nothing else is said.
inline constexpr std::int32_t rounds_predicted = 16;

/// Simulates the first rounds of a job by `costs`. Blocks are packed as in a run, but without MILP
/// and without small changes. At most 1024 samples are simulated for policy balanced; of large
/// batches the first samples. The work is therefore bounded, and results depend on the arguments
/// alone. The arguments must outlive the player.
class LayoutPlayer {
  public:
    LayoutPlayer(const Job& job, std::span<const DatasetInfo> datasets, const CostModel& costs)
        : job_(job), datasets_(datasets), costs_(costs) {}

    /// From now on, simulates only the first block.
    void play_one_block() { one_block_ = true; }

    /// Tokens/s of the plan's only replica; the plan needs no memory. `rough`: tries few packings.
    double speed(const Plan& plan, bool rough);
    /// Tokens/s of each plan. The plans differ only in the microbatches in flight and in what
    /// memory leaves them; the fewest in flight come first. Rounds are packed only for the first
    /// and the last plan.
    std::vector<double> speeds(std::span<const Plan> plans, bool rough = false);

  private:
    /// Packings do not depend on recomputation: layouts that differ in nothing else, or that are
    /// played again in another depth, share them.
    struct Packed {
        std::span<const Round> rounds;
        PackRules rules;  ///< without layers that keep activations
        PackingsByDepth packings = {};
    };

    const std::vector<Round>& rounds_of(const Plan& plan);
    PackingsByDepth& packed_before(PackRules rules, std::span<const Round> rounds);

    const Job& job_;
    std::span<const DatasetInfo> datasets_;
    const CostModel& costs_;
    bool one_block_ = false;
    std::map<std::vector<AdapterId>, std::vector<Round>> rounds_;  ///< by adapters admitted first
    std::deque<Packed> packed_;
};

/// Tokens/s of one plan (LayoutPlayer::speed()).
double played_speed(const Job& job, const Plan& plan, std::span<const DatasetInfo> datasets,
                    const CostModel& costs);

/// Tokens/s of the whole job, as a dry run predicts it from `rounds` rounds at a time. Shapes that
/// are new to a stage cost nothing here; a run meets most of them before it begins. `plan` has
/// memory and costs. 0 if the prediction is given up (predict_within()).
double whole_job_speed(const Job& job, Plan plan, std::span<const DatasetInfo> datasets,
                       const SpeedLimits& limits = {}, std::int32_t rounds = rounds_predicted);

}  // namespace loratrain
