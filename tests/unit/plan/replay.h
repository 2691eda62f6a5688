#pragma once

#include <cstddef>
#include <cstdint>

#include "plan/plan.h"

namespace loratrain::plan_test {

struct Timeline {
    bool finished = false;      ///< false = deadlock
    std::int64_t makespan = 0;  ///< tokens * (forward 1, backward 2), messages free
};

inline constexpr std::size_t unlimited = 1U << 20U;

/// Send buffers per stage and direction: a send waits while so many of its messages have not been
/// received.
struct SendBuffers {
    std::size_t forward = unlimited;
    std::size_t backward = unlimited;
};

/// Plays the action lists in time.
Timeline replay(const Window& window, SendBuffers buffers = {});

}  // namespace loratrain::plan_test
