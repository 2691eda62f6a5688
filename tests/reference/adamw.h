#pragma once

#include <cmath>
#include <vector>

#include "backend/backend.h"

namespace loratrain::reference {

/// State of one adapter; advanced by torch's AdamW with the hyper-parameters of `op`.
struct AdamWState {
    std::vector<double> parameters;
    std::vector<double> first_moments;
    std::vector<double> second_moments;
    std::int64_t applied_steps = 0;
};

inline void adamw(const AdamW& op, const std::vector<double>& gradients, double grad_sumsq,
                  AdamWState& state) {
    const double norm = std::sqrt(grad_sumsq);
    const double clip =
        op.max_grad_norm > 0.0 ? std::min(1.0, op.max_grad_norm / (norm + 1e-6)) : 1.0;
    const auto t = static_cast<double>(++state.applied_steps);
    for (std::size_t i = 0; i < gradients.size(); ++i) {
        const double g = gradients[i] * clip;
        double& p = state.parameters[i];
        double& m = state.first_moments[i];
        double& v = state.second_moments[i];
        p -= op.learning_rate * op.weight_decay * p;
        m = op.beta1 * m + (1.0 - op.beta1) * g;
        v = op.beta2 * v + (1.0 - op.beta2) * g * g;
        const double m_hat = m / (1.0 - std::pow(op.beta1, t));
        const double v_hat = v / (1.0 - std::pow(op.beta2, t));
        p -= op.learning_rate * m_hat / (std::sqrt(v_hat) + op.epsilon);
    }
}

}  // namespace loratrain::reference
