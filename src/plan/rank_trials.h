#pragma once

#include <cstdint>
#include <vector>

#include "base/ids.h"

namespace loratrain {

/// A value as trials are compared by: six digits of it; what is not finite is infinity.
double compared(double value);

/// How far a trial has come.
enum class TrialStage : std::uint8_t {
    complete,  ///< trained to its end, or to where it gained no more
    partial,   ///< ended before, or still under way
    failed,
};

struct TrialStanding {
    AdapterId trial{};
    TrialStage stage = TrialStage::partial;
    int rungs = 0;       ///< passed or at
    double value = 0.0;  ///< lower is better
};

/// Best first: complete ones by their values; then partial ones, those of later rungs first; failed
/// ones last. Equal ones by the order of trials.
std::vector<TrialStanding> rank_trials(std::vector<TrialStanding> trials);

}  // namespace loratrain
