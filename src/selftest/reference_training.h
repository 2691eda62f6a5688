#pragma once

#include <string>
#include <vector>

#include "selftest/tiny_model.h"

namespace loratrain {

/// The self test's own training in fp64, by definitions alone.

/// Settings of the training: AdamW on all samples in every step.
struct TinyTraining {
    int steps = 3;
    double learning_rate = 0.01;
    double weight_decay = 0.01;
    double beta1 = 0.9;
    double beta2 = 0.999;
    /// Large, so that the rounding error of a gradient near 0 does not make a step.
    double epsilon = 1e-3;
    double max_grad_norm = 0.5;
};

struct ReferenceCurve {
    std::vector<double> losses;      ///< before each step
    std::vector<double> grad_norms;  ///< before clipping
};

/// Sum of the token losses / number of targets, in fp64, by the definition of the model.
double reference_loss(const TinyModel& model, const TinyAdapter& adapter,
                      const std::vector<TinySample>& samples);

/// Trains the adapter in fp64 with gradients from finite differences of reference_loss(). Shares no
/// code with the program's operators, backward passes or optimizer.
ReferenceCurve train_reference(const TinyModel& model, const TinyTraining& training,
                               const std::vector<TinySample>& samples, TinyAdapter& adapter);

}  // namespace loratrain
