#include "plan/number_types.h"

namespace loratrain {

NumberTypes number_types(Precision precision, BackendKind backend) {
    const bool cuda = backend == BackendKind::cuda;
    if (precision == Precision::automatic) precision = cuda ? Precision::bf16 : Precision::fp32;
    if (precision == Precision::fp32) return {DType::f32, WeightFormat::f32};
    return {cuda ? DType::bf16 : DType::f32, WeightFormat::bf16, precision == Precision::fp8};
}

}  // namespace loratrain
