#pragma once

#include <cmath>

namespace loratrain {

/// log(1 / (1 + exp(-x))), without overflow for any x.
inline double log_sigmoid(double x) {
    return x < 0 ? x - std::log1p(std::exp(x)) : -std::log1p(std::exp(-x));
}

inline double sigmoid(double x) {
    return std::exp(log_sigmoid(x));
}

}  // namespace loratrain
