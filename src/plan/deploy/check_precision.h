#pragma once

#include "base/error.h"
#include "config/job.h"
#include "config/model_spec.h"
#include "plan/plan.h"

namespace loratrain {

/// Whether GPUs take fp8 products of all linears of a lane: their sizes are multiples of 16.
bool takes_fp8(const ModelSpec& lane_model);

/// model.precision: fp8 is for GPUs that have it and for models that they take it of, on each
/// replica's lanes; of quantised ones for those in e4m3 with a scale per row.
void check_precision(const Job& job, const ModelSpec& model, const Cluster& cluster,
                     Problems& problems);

}  // namespace loratrain
