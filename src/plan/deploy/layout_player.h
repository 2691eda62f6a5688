#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <vector>

#include "plan/pack/pack_microbatches.h"
#include "plan/plan.h"
#include "plan/predict/predict.h"

namespace loratrain {

/// That whole_job_speed() plays at a time.
inline constexpr std::int32_t rounds_predicted = 16;

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
/// has memory and costs. 0 where that is given up (predict_within).
double whole_job_speed(const Job& job, Plan plan, std::span<const DatasetInfo> datasets,
                       const SpeedLimits& limits = {});

}  // namespace loratrain
