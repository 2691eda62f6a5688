#pragma once

#include "base/error.h"
#include "config/job.h"
#include "config/model_spec.h"
#include "plan/plan.h"

namespace loratrain {

/// Checks that a model and GPUs can do what model.precision and eval.generate ask for.

/// Whether GPUs can compute the linears of a lane in fp8: the model allows it (Ability::fp8), and
/// all sizes are multiples of 16.
bool takes_fp8(const ModelSpec& lane_model);

/// Adds the problems of model.precision: fp8. It needs GPUs with fp8 and a model for which
/// takes_fp8() holds on the lanes of each replica. A quantised model must be in e4m3 with a scale
/// per row.
void check_precision(const Job& job, const ModelSpec& model, const Cluster& cluster,
                     Problems& problems);

}  // namespace loratrain
