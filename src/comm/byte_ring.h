#pragma once

#include <cstddef>
#include <cstdint>

#include "comm/byte_copy.h"

namespace loratrain {

/// Bytes on their way from one writer to one reader, in memory that both see: threads, or processes
/// that share it. Neither waits for the other. Each end has a ByteRing of its own over the same
/// memory, which was zero before the first.
class ByteRing {
  public:
    /// What the memory of a ring takes that holds `capacity` bytes.
    static std::size_t bytes_for(std::size_t capacity);

    /// `memory` has bytes_for(capacity) bytes, aligned as a cache line is, and outlives the ring.
    /// `copy`: memcpy where it is empty.
    ByteRing(void* memory, std::size_t capacity, ByteCopy copy = {});

    /// The writer's: bytes that can be written now; how many of `count` were.
    std::size_t room() const;
    std::size_t write(const void* data, std::size_t count);

    /// The reader's: bytes that can be read now; how many of `count` were.
    std::size_t filled() const;
    std::size_t read(void* data, std::size_t count);

  private:
    std::uint64_t* written_;  ///< bytes in all; the writer's alone to change
    std::uint64_t* read_;     ///< and the reader's
    char* data_;
    std::size_t capacity_;
    ByteCopy copy_;
};

}  // namespace loratrain
