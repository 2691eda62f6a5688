#pragma once

#include <sys/types.h>

#include <cstddef>
#include <string>
#include <utility>
#include <vector>

namespace loratrain {

/// Host memory in whole pages: of one process, or shared by the processes of a host. The pages are
/// zero at first, in large pages where the system has them. Constructors take all the memory at
/// once, on several threads, and throw Error if the system refuses.

/// Pages of this process.
class HostPages {
  public:
    HostPages() = default;
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

/// Pages that several processes of a host read and write: a file in memory without a name, which
/// lasts until the last process has released it. Its size is bounded by the memory of the host, not
/// by /dev/shm, which containers keep small.
class SharedPages {
  public:
    /// New pages.
    explicit SharedPages(std::size_t bytes);
    /// The pages of another process, which has sent its id and its file().
    SharedPages(pid_t process, int file, std::size_t bytes);
    SharedPages(const SharedPages&) = delete;
    SharedPages& operator=(const SharedPages&) = delete;
    ~SharedPages();

    char* data() const { return data_; }
    std::size_t bytes() const { return bytes_; }
    int file() const { return file_; }

  private:
    void map(const std::string& what);

    char* data_ = nullptr;
    std::size_t bytes_;
    int file_ = -1;
};

/// Asks for large pages behind an array to which nobody has written: the system gives them at the
/// first write, in a part of the time. Arrays of less than 32 MiB stay as they are: the C library
/// takes them from memory that it keeps, larger ones from the system each time.
void prefer_large_pages(void* data, std::size_t bytes);

/// Room for `count` elements in a vector that has none yet, with prefer_large_pages().
template <typename T>
void reserve_large(std::vector<T>& values, std::size_t count) {
    if (values.capacity() >= count) return;
    values.reserve(count);
    prefer_large_pages(values.data(), count * sizeof(T));
}

}  // namespace loratrain
