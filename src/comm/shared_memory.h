#pragma once

#include <cstddef>
#include <memory>

#include "comm/mpi_session.h"

namespace loratrain {

/// Memory that two ranks of one host share, zero at first. It has no name once both hold it, so
/// nothing stays behind, however they end.
class SharedMemory {
  public:
    /// Null on both ranks where they share none: on different hosts, in containers apart, or where
    /// so much is not left. Collective over this rank and `peer`; both give the same `bytes`.
    static std::unique_ptr<SharedMemory> connect(const MpiSession& mpi, int peer,
                                                 std::size_t bytes);

    SharedMemory(void* mapped, std::size_t bytes) : data_(mapped), bytes_(bytes) {}
    ~SharedMemory();
    SharedMemory(const SharedMemory&) = delete;
    SharedMemory& operator=(const SharedMemory&) = delete;

    /// Begins a page.
    void* data() const { return data_; }

    std::size_t bytes() const { return bytes_; }

  private:
    void* data_;
    std::size_t bytes_;
};

}  // namespace loratrain
