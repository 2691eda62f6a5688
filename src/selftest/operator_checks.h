#pragma once

#include <string>
#include <vector>

#include "backend/backend.h"

namespace loratrain {

/// The self test of single operators.

struct OperatorCheck {
    std::string name;
    double error = 0.0;  ///< relative_error() (host_matrix.h) against fp64
    double limit = 0.0;
    bool passed() const { return error <= limit; }
};

/// Compares products, RMSNorm, SwiGLU, attention, cross-entropy and AdamW of a backend in its
/// compute type with plain loops in fp64, on inputs that are exact in the compute type.
std::vector<OperatorCheck> check_operators(Backend& backend);

}  // namespace loratrain
