#pragma once

#include "config/job.h"

namespace loratrain {

/// Learning rate of optimizer step `step` (0-based) of `total_steps`, as Hugging Face's
/// get_*_schedule_with_warmup (w = warmup_steps, n = total_steps, lr = learning_rate):
///   constant: lr;  constant_with_warmup: lr step/w below w, then lr
///   linear: lr step/w below w, then lr max(0, (n - step) / max(1, n - w))
///   cosine: lr step/w below w, then lr max(0, (1 + cos(pi (step - w) / max(1, n - w))) / 2)
double learning_rate(const AdapterJob& adapter, int total_steps, int step);

}  // namespace loratrain
