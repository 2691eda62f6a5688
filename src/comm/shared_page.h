#pragma once

#include <cstddef>
#include <memory>

#include "comm/mpi_session.h"

namespace loratrain {

/// Memory that two ranks of one host share, zero at first. It has no name once both hold it, so
/// nothing stays behind, however they end.
class SharedPage {
  public:
    static constexpr std::size_t bytes = 4096;

    /// Null on both ranks where they share no memory: on different hosts, in containers apart, or
    /// where there is none left. Collective over this rank and `peer`.
    static std::unique_ptr<SharedPage> connect(const MpiSession& mpi, int peer);

    explicit SharedPage(void* mapped) : data_(mapped) {}
    ~SharedPage();
    SharedPage(const SharedPage&) = delete;
    SharedPage& operator=(const SharedPage&) = delete;

    /// Begins a page.
    void* data() const { return data_; }

  private:
    void* data_;
};

}  // namespace loratrain
