#pragma once

#include "backend/backend.h"
#include "config/model_spec.h"

namespace loratrain {

/// Seconds that the backend's GEMM needs for all base matrix products of `tokens` tokens, forward
/// and input gradient: the seven linears of every layer and the head, without LoRA columns.
double gemm_seconds(const ModelSpec& model, std::int64_t tokens, Backend& backend);

}  // namespace loratrain
