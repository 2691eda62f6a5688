#pragma once

#include <cstdint>

namespace loratrain {

/// Direction of a pipeline message; each direction between two ranks is an in-order channel.
enum class Channel : std::uint8_t {
    forward,   ///< activations, to the next stage
    backward,  ///< gradients, to the stage before
    norms,     ///< totals of gradient norms, to the next stage
};

}  // namespace loratrain
