#include "base/pages.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <thread>

#include "base/arithmetic.h"
#include "base/error.h"
#include "base/threads.h"

namespace loratrain {

namespace {

constexpr std::size_t share_bytes = std::size_t{64} << 20U;
constexpr std::size_t least_large = std::size_t{32} << 20U;  // glibc's DEFAULT_MMAP_THRESHOLD_MAX

/// Has the system give the pages their memory now, on several threads: one clears 2 to 4 GB/s.
void populate_pages(char* data, std::size_t bytes) {
#ifdef MADV_POPULATE_WRITE
    const auto threads = static_cast<int>(std::max(1U, std::thread::hardware_concurrency()));
    parallel_for(ceil_div(bytes, share_bytes), threads, [&](std::size_t share) {
        const std::size_t begin = share * share_bytes;
        // A system that does not know this advice fills pages at their first use.
        madvise(data + begin, std::min(share_bytes, bytes - begin), MADV_POPULATE_WRITE);
    });
#endif
}

[[noreturn]] void refuse_pages(const std::string& what) {
    throw Error(cat(what, ": ", std::strerror(errno)));
}

}  // namespace

HostPages::HostPages(std::size_t bytes) : bytes_(bytes) {
    if (bytes == 0) return;
    void* data = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (data == MAP_FAILED) {
        throw Error(cat("out of host memory: ", human_bytes(bytes), " (", bytes,
                        " bytes): ", std::strerror(errno)));
    }
    data_ = data;
    madvise(data, bytes, MADV_HUGEPAGE);
    populate_pages(static_cast<char*>(data), bytes);
}

HostPages::~HostPages() {
    if (data_ != nullptr) munmap(data_, bytes_);
}

SharedPages::SharedPages(std::size_t bytes) : bytes_(bytes) {
    const std::string what = cat("cannot make ", human_bytes(bytes), " of shared memory");
    file_ = memfd_create("loratrain", MFD_CLOEXEC);
    if (file_ < 0) refuse_pages(what);
    if (ftruncate(file_, static_cast<off_t>(bytes)) != 0) {
        const int reason = errno;
        close(file_);
        errno = reason;
        refuse_pages(what);
    }
    map(what);
    madvise(data_, bytes_, MADV_HUGEPAGE);
    populate_pages(data_, bytes_);
}

SharedPages::SharedPages(pid_t process, int file, std::size_t bytes) : bytes_(bytes) {
    const std::string path = cat("/proc/", process, "/fd/", file);
    file_ = open(path.c_str(), O_RDWR | O_CLOEXEC);
    if (file_ < 0) refuse_pages(cat("cannot open ", path));
    map(cat("cannot map ", path));
}

void SharedPages::map(const std::string& what) {
    void* data = mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_SHARED, file_, 0);
    if (data == MAP_FAILED) {
        const int reason = errno;
        close(file_);
        errno = reason;
        refuse_pages(what);
    }
    data_ = static_cast<char*>(data);
}

SharedPages::~SharedPages() {
    munmap(data_, bytes_);
    close(file_);
}

void prefer_large_pages(void* data, std::size_t bytes) {
    if (bytes < least_large) return;
    const auto page = static_cast<std::uintptr_t>(sysconf(_SC_PAGESIZE));
    const auto begin = reinterpret_cast<std::uintptr_t>(data);
    const std::size_t before = ceil_div(begin, page) * page - begin;
    // A system that does not know this advice gives usual pages.
    madvise(static_cast<char*>(data) + before, bytes - before, MADV_HUGEPAGE);
}

}  // namespace loratrain
