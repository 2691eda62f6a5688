#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/rng.h"

namespace loratrain::mpi_test {

/// What a rank has of the element: of such different sizes that the order of a sum shows; again
/// after a prime number of elements.
inline float drawn(std::size_t element, int rank) {
    constexpr std::size_t period = 4093;
    static std::vector<std::vector<float>> of_ranks;
    const auto of_rank = static_cast<std::size_t>(rank);
    while (of_ranks.size() <= of_rank) {
        const std::uint64_t key = mix_key(11, of_ranks.size());
        std::vector<float>& values = of_ranks.emplace_back(period);
        for (std::size_t i = 0; i < period; ++i) {
            const float size = std::ldexp(1.0F, static_cast<int>(uniform_int(7, i + 31, 24)) - 12);
            values[i] = size * (uniform_float(key, i) - 0.5F);
        }
    }
    return of_ranks[of_rank][element % period];
}

}  // namespace loratrain::mpi_test
