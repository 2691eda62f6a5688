#include "base/host_pages.h"

#include <sys/mman.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <thread>

#include "base/error.h"
#include "base/parallel_for.h"

namespace loratrain {

namespace {

constexpr std::size_t share_bytes = std::size_t{64} << 20U;

}  // namespace

/// One thread clears 2 to 4 GB a second.
void populate_pages(char* data, std::size_t bytes) {
#ifdef MADV_POPULATE_WRITE
    const auto threads = static_cast<int>(std::max(1U, std::thread::hardware_concurrency()));
    parallel_for((bytes + share_bytes - 1) / share_bytes, threads, [&](std::size_t share) {
        const std::size_t begin = share * share_bytes;
        // A system that does not know it fills pages at their first use.
        madvise(data + begin, std::min(share_bytes, bytes - begin), MADV_POPULATE_WRITE);
    });
#endif
}

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

}  // namespace loratrain
