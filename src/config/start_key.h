#pragma once

#include <compare>
#include <optional>
#include <string>

#include "config/job.h"
#include "config/model_spec.h"

namespace loratrain {

/// Everything that an adapter's evaluation before its first step depends on. Adapters with equal
/// keys get the same result, so they are evaluated once.
struct StartKey {
    DatasetId dataset{};
    std::string ref_adapter;  ///< with the dataset, what its losses are compared with
    LossJob loss;             ///< the keys that an evaluation depends on
    std::string form;         ///< "" = it starts as the base model; else what it adds to that
    friend auto operator<=>(const StartKey&, const StartKey&) = default;
};

/// The key, or none if no other adapter is known to start alike:
/// - LoRA and VeRA start as the base model, since their product is exactly zero;
/// - DoRA scales rows by m / |W|, which may round: it starts as DoRA on the same linears;
/// - a head that is tied to the embedding computes the logits of trained rows of tokens apart, with
///   other roundings: it starts as another with the same rows;
/// - none with init_from, with PiSSA or OLoRA (their first factors come from W and cancel but for
///   rounding), and for DoRA with patterns.
std::optional<StartKey> start_of(const AdapterJob& adapter, const ModelSpec& model);

}  // namespace loratrain
