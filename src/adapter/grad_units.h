#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "adapter/tensor_cut.h"
#include "config/job.h"
#include "plan/plan.h"

namespace loratrain {

/// A rank that has a unit: of a tensor at `first` of its arrays, the part `cut`.
struct UnitHolder {
    std::int32_t rank = 0;
    std::int64_t first = 0;
    TensorCut cut;
};

/// A part of an adapter's trained parameters that every rank which has any of it has as a whole:
/// a tensor, or a slice of one where lanes of some replica cut it. What its holders have of it is
/// at most exchanged_at_once() values, all together (plan/memory/memory_model.h).
struct GradUnit {
    std::string name;  ///< of the tensor, as files have it
    std::int64_t count = 0;
    std::vector<UnitHolder> holders;  ///< by replica, stage and lane (ranks_in_order)
    std::int32_t owner = 0;           ///< the holder that adds up what all have
};

/// All units of an adapter in a plan of any replicas: each trained parameter is in one. A rank's
/// gradient of a unit is a part of the whole gradient, whose sum over the holders is all of it:
/// other samples, or what another lane computes of it. Depends on the arguments alone.
std::vector<GradUnit> grad_units(const AdapterJob& adapter, AdapterId id, const Plan& plan);

}  // namespace loratrain
