#pragma once

#include <compare>
#include <optional>
#include <string>

#include "config/job.h"
#include "model/objective/reference_losses.h"

namespace loratrain {

/// What decides an adapter's evaluation before its first step. Adapters with equal keys come to the
/// same numbers there, so one evaluation is made for all of them.
struct StartKey {
    ReferenceId reference;  ///< the dataset, and what its samples are compared with
    LossJob loss;           ///< what an evaluation takes of it
    std::string form;       ///< "" = it begins as the base model; else what it computes beside that
    friend auto operator<=>(const StartKey&, const StartKey&) = default;
};

/// None = no other adapter is known to begin alike: it has an init_from, its first factors come
/// from W and cancel but for rounding (PiSSA, OLoRA), or it is DoRA with patterns. LoRA and VeRA
/// begin as the base model whatever else their keys say, as their product begins with exact zeros.
/// DoRA's rows are scaled by m / |W|, which may round: it begins as DoRA on the same linears does.
std::optional<StartKey> start_key(const AdapterJob& adapter);

}  // namespace loratrain
