#pragma once

#include <cstdint>
#include <vector>

#include "backend/backend.h"
#include "kernels/sizes.h"
#include "reference/host_matrix.h"
#include "support/device_data.h"

namespace loratrain {

/// A router.
struct RouterCase {
    std::int64_t tokens;
    std::int64_t experts;
    std::int64_t per_token;
    bool normalised;
};
inline constexpr RouterCase router_cases[] = {{1, 4, 2, true},       {37, 6, 2, true},
                                              {50, 128, 8, true},    {2100, 33, 3, false},
                                              {70, 1024, 32, false}, {5, 3, 3, true}};

/// Logits some of which are equal, of experts that few or no rows choose.
inline reference::HostMatrix logits_of(const RouterCase& of) {
    reference::HostMatrix logits = reference::random_matrix(of.tokens, of.experts, 5, DType::f32);
    for (std::int64_t t = 0; t < of.tokens; ++t) {
        for (std::int64_t e = 0; e < of.experts; ++e) {
            double& at = logits(t, e);
            at = reference::rounded_to(DType::f32, 4.0 * at - (e % 5 == 3 ? 7.0 : 0.0));
        }
        if (t % 7 == 2) logits(t, of.experts - 1) = logits(t, 0);
    }
    return logits;
}

/// ExpertRoutes in a backend's memory.
struct DeviceRoutes {
    DeviceRoutes(Backend& backend, const RouterCase& of)
        : probabilities(backend, zeros<float>(of.tokens * of.experts)),
          weights(backend, zeros<float>(of.tokens * of.per_token)),
          chosen(backend, zeros<std::int32_t>(of.tokens * of.per_token)),
          places(backend, zeros<std::int32_t>(of.tokens * of.per_token)),
          rows(backend, zeros<std::int32_t>(of.tokens * of.per_token)),
          offsets(backend, zeros<std::int32_t>(of.experts + 1)),
          tiles(backend, zeros<std::int32_t>(
                             kernels::most_expert_tiles(of.tokens * of.per_token, of.experts) *
                             kernels::expert_tile_bytes / 4)),
          counters(backend, zeros<std::int32_t>(2)),
          entries(backend, zeros<std::int32_t>(of.tokens * of.per_token)),
          routes{of.tokens,      of.experts,    of.per_token,    probabilities.data(),
                 weights.data(), chosen.data(), places.data(),   rows.data(),
                 offsets.data(), tiles.data(),  counters.data(), entries.data()} {}
    DeviceRoutes(const DeviceRoutes&) = delete;
    DeviceRoutes& operator=(const DeviceRoutes&) = delete;

    template <class T>
    static std::vector<T> zeros(std::int64_t count) {
        return std::vector<T>(static_cast<std::size_t>(count));
    }

    DeviceVector<float> probabilities;
    DeviceVector<float> weights;
    DeviceVector<std::int32_t> chosen;
    DeviceVector<std::int32_t> places;
    DeviceVector<std::int32_t> rows;
    DeviceVector<std::int32_t> offsets;
    DeviceVector<std::int32_t> tiles;
    DeviceVector<std::int32_t> counters;
    DeviceVector<std::int32_t> entries;
    ExpertRoutes routes;
};

}  // namespace loratrain
