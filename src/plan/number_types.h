#pragma once

#include "base/weight_format.h"
#include "config/job.h"

namespace loratrain {

/// What a job's `model.precision` stands for on a backend: the type that it computes in, and the
/// format of the base weights there.
struct NumberTypes {
    DType compute = DType::f32;
    WeightFormat weights = WeightFormat::f32;
    bool fp8_linears = false;  ///< Plan::fp8_linears
};

/// fp32: both. bf16: both on CUDA, storage alone on the CPU, which computes in fp32.
/// automatic: bf16 on CUDA, fp32 on the CPU. fp8: as bf16, with the linears of the layers in e4m3.
NumberTypes number_types(Precision precision, BackendKind backend);

}  // namespace loratrain
