#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

namespace loratrain {

/// Checksums of files' contents.

/// XXH64 (seed 0) of bytes that come in parts. Detects truncation and corruption, not tampering.
class Checksum {
  public:
    Checksum();
    void update(const void* data, std::size_t bytes);
    std::uint64_t value() const;
    std::string hex() const;  ///< 16 lower-case hex digits

  private:
    std::uint64_t lanes_[4];
    unsigned char pending_[32];
    std::size_t pending_bytes_ = 0;
    std::uint64_t total_ = 0;
};

/// Fletcher-32 as HDF5's filter of that name has it: of big-endian words of 16 bits, the last one
/// filled with a zero byte.
std::uint32_t fletcher32(const void* data, std::size_t bytes);
/// Bytes of it behind a chunk's data in a file, the lowest first.
inline constexpr std::uint64_t fletcher32_bytes = 4;

}  // namespace loratrain
