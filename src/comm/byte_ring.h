#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>

namespace loratrain {

/// A ring of bytes from one writer to one reader in memory that both see.

/// Copies `bytes` bytes, as memcpy does.
using ByteCopy = std::function<void(void* to, const void* from, std::size_t bytes)>;

/// One end of a ring. Writer and reader are threads, or processes that share memory; neither waits
/// for the other. Each end has a ByteRing of its own over the same memory, which is zero before the
/// first end is made.
class ByteRing {
  public:
    /// Bytes of memory for a ring that holds `capacity` bytes.
    static std::size_t bytes_for(std::size_t capacity);

    /// `memory` has bytes_for(capacity) bytes, is aligned to a cache line and outlives the ring.
    /// `copy` {} = memcpy.
    ByteRing(void* memory, std::size_t capacity, ByteCopy copy = {});

    /// Writer: bytes that can be written now.
    std::size_t room() const;
    /// Writer: writes as many of `count` bytes as there is room for; returns their number.
    std::size_t write(const void* data, std::size_t count);

    /// Reader: bytes that can be read now.
    std::size_t filled() const;
    /// Reader: reads up to `count` bytes; returns their number.
    std::size_t read(void* data, std::size_t count);

  private:
    std::uint64_t* written_;  ///< total of bytes; only the writer changes it
    std::uint64_t* read_;     ///< total of bytes; only the reader changes it
    char* data_;
    std::size_t capacity_;
    ByteCopy copy_;
};

}  // namespace loratrain
