#pragma once

#include <cstddef>
#include <utility>

namespace loratrain {

/// Has the system give mapped pages their memory now, on several threads.
void populate_pages(char* data, std::size_t bytes);

/// Whole pages of this process's memory, zero at first, in large ones where the system has them.
class HostPages {
  public:
    HostPages() = default;
    /// Takes all of it now, on several threads. Throws Error where the system has not so much.
    explicit HostPages(std::size_t bytes);
    HostPages(HostPages&& other) noexcept { *this = std::move(other); }
    HostPages& operator=(HostPages&& other) noexcept {
        std::swap(data_, other.data_);
        std::swap(bytes_, other.bytes_);
        return *this;
    }
    HostPages(const HostPages&) = delete;
    HostPages& operator=(const HostPages&) = delete;
    ~HostPages();

    char* data() const { return static_cast<char*>(data_); }
    std::size_t bytes() const { return bytes_; }

  private:
    void* data_ = nullptr;
    std::size_t bytes_ = 0;
};

}  // namespace loratrain
