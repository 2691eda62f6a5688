#pragma once

#include <string>
#include <vector>

#include "backend/backend.h"

namespace loratrain {

struct OperatorCheck {
    std::string name;
    double error = 0.0;  ///< relative_error() (host_matrix.h) beside fp64
    double limit = 0.0;
    bool passed() const { return error <= limit; }
};

/// Products, RMSNorm, SwiGLU, attention, cross-entropy and AdamW of a backend in its compute type
/// beside plain loops in fp64, on inputs that the type holds exactly.
std::vector<OperatorCheck> check_operators(Backend& backend);

}  // namespace loratrain
