#include "model/objective/objective.h"

#include "model/objective/cross_entropy_objective.h"

namespace loratrain {

const Objective& objective_of(const AdapterJob& /*adapter*/) {
    static const CrossEntropyObjective cross_entropy;
    return cross_entropy;
}

}  // namespace loratrain
