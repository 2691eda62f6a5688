#pragma once

#include <string>
#include <vector>

#include "io/safetensors.h"
#include "io/weights/base_weights.h"

namespace loratrain {

/// A tensor of an adapter's file that is the base's own: PEFT writes the head and the embedding
/// beside LoRA on them, and puts them into the base when it loads the directory.
struct OwnWeight {
    std::string tensor;  ///< "base_model.model.lm_head.base_layer.weight", or without base_layer
    std::string weight;  ///< of the base: the embedding's where the head is tied to it
};
std::vector<OwnWeight> own_weights(const ModelSpec& model);

/// The tensor of the file, of shape [vocabulary, hidden size], has the base's values, but for the
/// rounding of either to its type. Read in parts of some MB.
bool is_of_base(const SafetensorsFile& file, const OwnWeight& own, const WeightSource& base);

inline constexpr const char* not_of_base =
    "is another than the base's own, in whose place PEFT would load it";
inline constexpr const char* not_of_base_hint = "import the base that it was saved with";

}  // namespace loratrain
