#pragma once

#include <cstdint>
#include <vector>

#include "config/model_spec.h"

namespace loratrain {

/// Work of causal attention for a sample, averaged over the layers of a model, some of which may
/// have another mixer.
class AttentionSpan {
  public:
    /// Of a model with attention in all layers, without sliding windows.
    AttentionSpan() = default;
    explicit AttentionSpan(const ModelSpec& model);

    /// About twice the number of token pairs that see each other: tokens² without a sliding window,
    /// m (2 tokens - m) with one, m = min(sliding_window, tokens).
    double squares(std::int64_t tokens) const;

  private:
    struct Layers {
        std::int64_t sliding_window = 0;
        double share = 0.0;  ///< of all layers
    };
    std::vector<Layers> layers_;  ///< empty: all layers see all
};

}  // namespace loratrain
