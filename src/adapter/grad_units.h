#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "adapter/tensor_cut.h"
#include "config/job.h"
#include "plan/plan.h"

namespace loratrain {

/// A rank's copy of a unit: of the tensor at `first` of its arrays, the part `cut`.
struct UnitCopy {
    std::int32_t rank = 0;
    std::int64_t first = 0;
    TensorCut cut;
};

/// A part of an adapter's trained parameters that every rank which has any of it has as a whole:
/// a tensor, or a slice of one where lanes of some replica cut it. All its copies
/// together are at most exchanged_at_once() values (plan/memory/memory_model.h).
struct GradUnit {
    std::string name;  ///< of the tensor, as files have it
    std::int64_t count = 0;
    std::vector<UnitCopy> copies;  ///< by replica, stage and lane (ranks_in_order)
    std::int32_t owner = 0;        ///< the rank that adds up all copies
};

/// All units of an adapter in a plan of any replicas: each trained parameter is in one. A rank's
/// gradient of a unit is a part of the whole gradient, which is the sum over the copies:
/// other samples, or what another lane computes of it. Depends on the arguments alone.
std::vector<GradUnit> grad_units(const AdapterJob& adapter, AdapterId id, const Plan& plan);

}  // namespace loratrain
