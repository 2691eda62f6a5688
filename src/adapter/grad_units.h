#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "adapter/tensor_cut.h"
#include "config/job.h"
#include "plan/plan.h"

namespace loratrain {

/// Gradient units: the parts of an adapter's gradient that ranks sum as a whole.

/// One rank's copy of a gradient unit: part `cut`, one range, of the tensor that begins at `first`
/// in the rank's arrays.
struct UnitCopy {
    std::int32_t rank = 0;
    std::int64_t first = 0;
    TensorCut cut;
};

/// A part of an adapter's trained parameters that each rank holds either wholly or not at all: a
/// tensor, or a slice of a tensor that lanes of some replica cut. All copies of a unit together are
/// at most exchanged_at_once() values (plan/memory/memory_model.h).
struct GradUnit {
    std::string name;  ///< name of the tensor in files
    std::int64_t count = 0;
    std::vector<UnitCopy> copies;  ///< by replica, stage and lane (ranks_in_order)
    std::int32_t owner = 0;        ///< the rank that adds up all copies
};

/// All gradient units of an adapter in a plan with any replicas. Each trained parameter is in
/// exactly one unit. The whole gradient of a unit is the sum over its copies: a rank's copy covers
/// only the rank's samples, or only the part that its lane computes. A pure function of the
/// arguments.
std::vector<GradUnit> grad_units(const AdapterJob& adapter, AdapterId id, const Plan& plan);

}  // namespace loratrain
