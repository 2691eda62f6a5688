#pragma once

#include <cstddef>

namespace loratrain {

/// A piece of backend memory to be read.
struct ReadPart {
    const void* source = nullptr;
    std::size_t bytes = 0;
};

/// Bytes on their way from backend memory to the host (Backend::read_later). Destroyed before its
/// backend.
class Readback {
  public:
    virtual ~Readback() = default;
    /// True once the stream is past the reading; does not wait.
    virtual bool ready() = 0;
    /// The parts one behind the other, valid as long as the object; waits where not ready().
    virtual const void* value() = 0;
};

}  // namespace loratrain
