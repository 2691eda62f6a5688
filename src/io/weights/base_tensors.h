#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "config/model_spec.h"

namespace loratrain {

/// A tensor of the base model: its name and row-major shape. base_tensors() lists every tensor that
/// the base model must have.
struct BaseTensor {
    std::string name;                 ///< HF tensor name = dataset path
    std::vector<std::int64_t> shape;  ///< [out, in], or [n] for norms and biases
};
std::vector<BaseTensor> base_tensors(const ModelSpec& spec);

}  // namespace loratrain
