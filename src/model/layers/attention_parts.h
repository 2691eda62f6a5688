#pragma once

#include "model/layers/sublayer.h"

namespace loratrain {

/// Steps that all kinds of attention share (AttentionSpec): columns of q, k and v side by side,
/// rotary positions, and attention itself.

struct AttentionHeads {
    TensorView q;
    TensorView k;
    TensorView v;
};
/// Columns of AttentionActivations::qkv, or of its gradient.
AttentionHeads split_heads(const LayerSite& at, const TensorView& qkv);

/// Of AttentionActivations::qkv, to `seen` with output gates, otherwise to `o`.
Attention attention_op(const LayerSite& at);
/// With the earlier tokens of texts that are being generated.
void run_attention(const LayerTools& tools, const LayerSite& at);

/// Heads rotated in place; the first `queries` columns are q's.
void rotate_heads(const LayerTools& tools, const TensorView& x, const LayerSite& at, bool backward,
                  std::int64_t queries);

}  // namespace loratrain
