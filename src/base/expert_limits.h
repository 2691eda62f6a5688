#pragma once

#include <cstdint>

namespace loratrain {

/// Experts that a router may have, and that a row may go to: what kernels have room for.
inline constexpr std::int64_t most_experts = 1024;
inline constexpr std::int64_t most_experts_per_token = 32;

}  // namespace loratrain
