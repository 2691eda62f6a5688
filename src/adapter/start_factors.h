#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "backend/backend.h"
#include "config/adapter_form.h"

namespace loratrain {

/// How PiSSA and OLoRA initialise A and B from W [out, in] = U diag(S) Vᵀ = Q R, in fp32, as PEFT
/// (tuners/lora/layer.py: pissa_init, olora_init):
///   pissa  A = diag(sqrt(S / scaling)) Vᵀ,  B = U diag(sqrt(S / scaling)),  of the r largest S
///   olora  A = the first r rows of R,       B = the first r columns of Q
/// The signs of singular vectors are arbitrary: B A does not depend on them.
struct StartRule {
    Initial method = Initial::pissa;
    /// Subspace iterations from a random start, as torch.svd_lowrank. None: iterate until the norm
    /// of every residual (A v - S u) is at most 1e-6 of the largest S, or 300 times. If a side of W
    /// is 256 or less, the decomposition is exact without iterations.
    std::optional<int> iterations;
    std::int64_t rank = 0;  ///< at most the smaller side of W
    double scaling = 1.0;
    std::uint64_t key = 0;  ///< seed of the random start
};

struct StartFactors {
    std::vector<float> a;  ///< [rank, in]
    std::vector<float> b;  ///< [rank, out]: transposed
};

/// The initial A and B of W [out, in]. `host` is a CPU backend, which multiplies with W; the result
/// does not depend on its number of threads.
StartFactors start_factors(const StartRule& rule, const LinearShape& shape,
                           std::span<const float> w, Backend& host);

}  // namespace loratrain
