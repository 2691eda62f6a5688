#pragma once

#include <cstdint>
#include <limits>
#include <optional>
#include <span>
#include <vector>

#include "plan/cost/met_shapes.h"
#include "plan/pack/pack_microbatches.h"
#include "plan/plan.h"
#include "plan/predict/simulate.h"
#include "plan/schedule/plan_window.h"

namespace loratrain {

/// Predicts speed and time of a whole job.

/// No step taken yet; adapters that are not among the first admitted do not train.
Progress at_start(const Plan& plan);

/// What a whole job will probably take, evaluation and checkpoints not counted.
struct Prediction {
    Timeline start;                  ///< the simulated first rounds
    std::int32_t rounds = 0;         ///< of the whole job
    std::int32_t rounds_played = 0;  ///< of them simulated; the others extrapolated
    std::int64_t tokens = 0;         ///< of the whole job; epochs in part by their mean
    double seconds = 0.0;
    std::vector<double> idle_share;            ///< per stage, of all replicas one after the other
    std::vector<std::int32_t> lanes;           ///< of those stages; 1 where nothing is said
    std::vector<std::int64_t> replica_tokens;  ///< rows of each replica in the blocks played
    FillingCounts fillings;                    ///< of the blocks played
    double tokens_per_second() const;
    double mean_idle_share() const;
};

/// Plays `rounds` rounds with plan.costs at the start and again where an adapter has come to its
/// end, and takes the rounds between to last as long as the later half of those played takes
/// without filling and draining, and without new shapes (met_shapes.h); fewer rounds, at least
/// four, where these have some thousand samples. Whole packing blocks are played, and whole blocks
/// are that half: of one block alone as many rounds behind it are. At most eight such windows are
/// played, the rest goes by tokens. `met`: shapes that stages have met before.
Prediction predict(const Job& job, const Plan& plan, std::span<const DatasetInfo> datasets,
                   std::int32_t rounds, const MetShapes& met = {});

/// predict() of some of the adapters, as if the others had ended.
Prediction predict_some(const Job& job, const Plan& plan, std::span<const DatasetInfo> datasets,
                        std::int32_t rounds, std::span<const AdapterId> adapters,
                        const MetShapes& met = {});

/// Speeds of a whole job, tokens a second.
struct SpeedLimits {
    double least = 0.0;  ///< below which a prediction is of no interest
    double most = std::numeric_limits<double>::infinity();  ///< that no run exceeds
};

/// The same; none as soon as what is played leaves no way to reach limits.least, or where the first
/// rounds of several replicas are slower than that by 5%.
std::optional<Prediction> predict_within(const Job& job, const Plan& plan,
                                         std::span<const DatasetInfo> datasets, std::int32_t rounds,
                                         const SpeedLimits& limits);

}  // namespace loratrain
