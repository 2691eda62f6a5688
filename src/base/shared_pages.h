#pragma once

#include <sys/types.h>

#include <cstddef>
#include <string>

namespace loratrain {

/// Whole pages that several processes of a host read and write: a file without a name, in memory,
/// which lasts until the last of them has let it go. Other than files of /dev/shm, which containers
/// keep small, it may be as large as the memory is.
class SharedPages {
  public:
    /// New ones, zero, with all their memory. Throws Error where the system refuses.
    explicit SharedPages(std::size_t bytes);
    /// Those of another process, as it tells: its id and its file(). Throws as above.
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

}  // namespace loratrain
