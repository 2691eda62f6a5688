#pragma once

#include <algorithm>
#include <chrono>
#include <functional>

#include "backend/backend.h"

/// How benches of a GPU's operators count time: by the host's clock, around calls that are queued
/// and then waited for.

namespace loratrain {

inline double seconds_now() {
    return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch())
        .count();
}

/// Seconds of one call: the best of `batches` batches of `calls` calls.
inline double best_seconds(Backend& backend, int batches, int calls,
                           const std::function<void()>& call) {
    double best = 1e30;
    for (int batch = 0; batch < batches; ++batch) {
        const double start = seconds_now();
        for (int i = 0; i < calls; ++i) call();
        backend.synchronize();
        best = std::min(best, (seconds_now() - start) / calls);
    }
    return best;
}

}  // namespace loratrain
