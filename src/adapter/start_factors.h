#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "backend/backend.h"
#include "config/adapter_form.h"

namespace loratrain {

/// What PiSSA and OLoRA start with, of W [out, in] = U diag(S) Vᵀ = Q R, in fp32; as PEFT
/// (tuners/lora/layer.py: pissa_init, olora_init):
///   pissa  A = diag(sqrt(S / scaling)) Vᵀ,  B = U diag(sqrt(S / scaling)),  of the r largest S
///   olora  A = the first r rows of R,       B = the first r columns of Q
/// The signs of singular vectors are whatever they are: B A does not depend on them.
struct StartRule {
    Initial method = Initial::pissa;
    /// Of torch.svd_lowrank, from a random start; none: until every A v - S u is 1e-6 of the
    /// largest S or less, or after 300 iterations. Where a side of W is 256 or less it is exact at
    /// once.
    std::optional<int> iterations;
    std::int64_t rank = 0;  ///< at most the smaller side
    double scaling = 1.0;
    std::uint64_t key = 0;  ///< of the random start
};

struct StartFactors {
    std::vector<float> a;  ///< [rank, in]
    std::vector<float> b;  ///< [rank, out]: transposed
};

/// `host`: a CPU backend, which multiplies with W; its number of threads changes nothing.
StartFactors start_factors(const StartRule& rule, const LinearShape& shape,
                           std::span<const float> w, Backend& host);

}  // namespace loratrain
