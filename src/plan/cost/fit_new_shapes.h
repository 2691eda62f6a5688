#pragma once

#include <cstdint>
#include <span>

#include "plan/cost/costs.h"

namespace loratrain {

/// What the host took for a load beyond what the same load takes again.
struct NewShapeObservation {
    std::int64_t nth = 0;  ///< which of its kind the shape of its rows was, from 1; 0 = met before
    double rows = 0.0;     ///< of that shape
    std::int64_t graphs = 0;  ///< of attention that were built for it
    double seconds = 0.0;
};

/// HostCosts' costs of new shapes.
struct NewShapeCosts {
    double new_attention = 0.0;
    NewShapeLine new_rows;
};

/// A graph of attention takes what loads took, in the mean, that met no other new shape; what is
/// left of the others is rows'. The line's terms need three of those, else `prior`'s stay.
NewShapeCosts fit_new_shapes(std::span<const NewShapeObservation> observations,
                             const NewShapeCosts& prior);

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
