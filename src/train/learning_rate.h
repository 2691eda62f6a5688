#pragma once

#include "config/job.h"

namespace loratrain {

/// Steps of the warm-up, as transformers 5 reads warmup_steps: a fraction of `total_steps`, rounded
/// up to whole ones, where it is below 1.
int warmup_steps(const AdapterJob& adapter, int total_steps);

/// Learning rate of optimizer step `step` (0-based) of `total_steps`, as Hugging Face's
/// get_*_schedule_with_warmup (w = warmup_steps(), n = total_steps, lr = learning_rate):
///   constant: lr;  constant_with_warmup: lr step/w below w, then lr
///   linear: lr step/w below w, then lr max(0, (n - step) / max(1, n - w))
///   cosine: lr step/w below w, then lr max(0, (1 + cos(pi (step - w) / max(1, n - w))) / 2)
double learning_rate(const AdapterJob& adapter, int total_steps, int step);

}  // namespace loratrain
