#pragma once

#include "config/job.h"

namespace loratrain {

/// Learning rate of optimizer step `step` (0-based) of `total_steps`, as Hugging Face's
/// get_*_schedule_with_warmup (w = warmup_steps() of plan/rungs.h, n = total_steps, lr =
/// learning_rate):
///   constant: lr;  constant_with_warmup: lr step/w below w, then lr
///   linear: lr step/w below w, then lr max(0, (n - step) / max(1, n - w))
///   cosine: lr step/w below w, then lr max(0, (1 + cos(2 pi c p)) / 2)
/// with p = (step - w) / max(1, n - w), c = num_cycles (0.5). The following warm up as above:
///   cosine_with_restarts: lr (1 + cos(pi (c p mod 1))) / 2 with c = 1, 0 from p = 1 on
///   cosine_with_min_lr: lr (m + (1 - m) cosine), m = min_lr_rate or min_lr / lr
///   polynomial: lr_end + (lr - lr_end) (1 - p)^power
///   inverse_sqrt: lr / sqrt((step - w + t) / t), t = timescale, else w, else 10,000
///   warmup_stable_decay: lr (m + (1 - m) ramp), m = min_lr_ratio, with a ramp up of warmup_type in
///     w steps, lr in num_stable_steps (else n - w - num_decay_steps), a ramp down of decay_type in
///     num_decay_steps, then lr m. Ramps down over q from 0 to 1: linear 1 - q,
///     cosine (1 + cos(2 pi c q)) / 2, 1-sqrt 1 - sqrt(q); up: linear q, cosine (1 - cos(pi q)) /
///     2, 1-sqrt 1 - sqrt(1 - q)
double learning_rate(const AdapterJob& adapter, int total_steps, int step);

}  // namespace loratrain
