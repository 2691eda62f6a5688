#pragma once

#include <cstdint>
#include <span>

#include "backend/ops/lora.h"
#include "base/tensor.h"

namespace loratrain {

/// Rows of the embedding W [V, H] that adapters have in place of the base's: PEFT's
/// TrainableTokensLayer. Row i of an adapter's rows R [tokens, H] is that of tokens[i].

/// One adapter's, and the gradient of R. No tokens = the base's rows alone.
struct TokenSlot {
    /// Each once [host]; those below 0 are other lanes', whose rows are left out.
    std::span<const std::int32_t> tokens;
    const float* rows = nullptr;
    float* gradient = nullptr;
};

/// Rows of a microbatch, each with the slot of its segment. [host]
struct TokenRows {
    std::span<const TokenSlot> slots;
    std::span<const LoraSegment> segments;
};

/// Rows of the embedding, for rows t whose ids[t] is tokens[i]; others are left as they are.
///   place_tokens            x_t = scale R_i
///   place_tokens_backward   gradient_i += scale x_t, unless ids[t] is `still`; row by row
/// x: [T, H].
struct PlaceTokens {
    TokenRows of;
    const std::int32_t* ids = nullptr;  ///< [T]
    TensorView x;                       ///< or its gradient
    float scale = 1.0F;
    std::int32_t still = -1;
};

/// The product with a head that is W: logits[t, tokens[i]] = scale x_t R_iᵀ. x: [T, H]; logits:
/// [T, V].
struct TokenLogits {
    TokenRows of;
    TensorView x;
    TensorView logits;
    float scale = 1.0F;
};

/// Backward pass of these logits, before that of the others, which adds to dx:
///   dx_t = scale sum over i of d_logits[t, tokens[i]] R_i; 0 in rows without tokens
///   gradient_i += scale sum over t of d_logits[t, tokens[i]] x_t
///   d_logits[t, tokens[i]] = 0
struct TokenLogitsBackward {
    TokenRows of;
    TensorView x;
    TensorView d_logits;
    TensorView dx;
    float scale = 1.0F;
};

}  // namespace loratrain
