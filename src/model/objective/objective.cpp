#include "model/objective/objective.h"

#include "model/objective/cross_entropy_objective.h"
#include "model/objective/pair_objectives.h"

namespace loratrain {

void RewardSums::add(const RewardSums& other) {
    chosen += other.chosen;
    rejected += other.rejected;
    accuracies += other.accuracies;
    logps_chosen += other.logps_chosen;
    logps_rejected += other.logps_rejected;
}

const Objective& objective_of(const AdapterJob& adapter) {
    static const CrossEntropyObjective cross_entropy;
    static const DpoObjective dpo;
    static const CpoObjective cpo;
    static const OrpoObjective orpo;
    switch (adapter.loss.loss) {
        case Loss::sft:
            return cross_entropy;
        case Loss::dpo:
            return dpo;
        case Loss::cpo:
        case Loss::simpo:
            return cpo;
        case Loss::orpo:
            return orpo;
    }
    return cross_entropy;
}

}  // namespace loratrain
