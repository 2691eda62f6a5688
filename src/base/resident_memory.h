#pragma once

#include <cstdint>

namespace loratrain {

/// Resident memory of this process in bytes, now and at its peak, without mapped files: the code of
/// the program and its libraries is shared by all ranks of a host.
struct ResidentMemory {
    std::uint64_t now = 0;
    std::uint64_t peak = 0;
};
ResidentMemory resident_memory();

}  // namespace loratrain
