#pragma once

#include <cstdint>
#include <span>

#include "plan/costs.h"

namespace loratrain {

/// What the host took for a load whose rows' shape was new beyond what the same load takes again.
struct NewShapeObservation {
    std::int64_t nth = 0;  ///< which of its kind the shape was, from 1
    double rows = 0.0;     ///< of that shape
    double seconds = 0.0;
};

/// HostCosts::new_rows. The line's terms need three loads that took longer the first time, else
/// `prior`'s stay.
NewShapeLine fit_new_shapes(std::span<const NewShapeObservation> observations,
                            const NewShapeLine& prior);

/// The same of the head, whose shapes are of about one size: those of a load that were new, in the
/// order in which they were met, and what they took.
struct NewTargetsObservation {
    std::int64_t shapes = 0;
    double seconds = 0.0;
};
/// The first load tells what first ones take more than the later ones do in the mean; without any
/// of either `prior`.
NewShapeLine fit_new_targets(std::span<const NewTargetsObservation> observations,
                             const NewShapeLine& prior);

}  // namespace loratrain
