#pragma once

#include <cstdint>
#include <vector>

#include "config/model_spec.h"

namespace loratrain {

/// What causal attention computes of a sample, as an average over the layers of a model.
class AttentionSpan {
  public:
    /// No layer has a sliding window.
    AttentionSpan() = default;
    explicit AttentionSpan(const ModelSpec& model);

    /// tokens² in a layer without a sliding window, m (2 tokens - m) with m = min(sliding_window,
    /// tokens) in one with: about twice the pairs of tokens that see each other.
    double squares(std::int64_t tokens) const;

  private:
    struct Layers {
        std::int64_t sliding_window = 0;
        double share = 0.0;  ///< of all layers
    };
    std::vector<Layers> layers_;  ///< empty: no sliding windows
};

}  // namespace loratrain
