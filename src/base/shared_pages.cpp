#include "base/shared_pages.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "base/error.h"
#include "base/host_pages.h"

namespace loratrain {

namespace {

[[noreturn]] void refuse(const std::string& what) {
    throw Error(cat(what, ": ", std::strerror(errno)));
}

}  // namespace

SharedPages::SharedPages(std::size_t bytes) : bytes_(bytes) {
    const std::string what = cat("cannot make ", human_bytes(bytes), " of shared memory");
    file_ = memfd_create("loratrain", MFD_CLOEXEC);
    if (file_ < 0) refuse(what);
    if (ftruncate(file_, static_cast<off_t>(bytes)) != 0) {
        const int reason = errno;
        close(file_);
        errno = reason;
        refuse(what);
    }
    map(what);
    madvise(data_, bytes_, MADV_HUGEPAGE);
    populate_pages(data_, bytes_);
}

SharedPages::SharedPages(pid_t process, int file, std::size_t bytes) : bytes_(bytes) {
    const std::string path = cat("/proc/", process, "/fd/", file);
    file_ = open(path.c_str(), O_RDWR | O_CLOEXEC);
    if (file_ < 0) refuse(cat("cannot open ", path));
    map(cat("cannot map ", path));
}

void SharedPages::map(const std::string& what) {
    void* data = mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_SHARED, file_, 0);
    if (data == MAP_FAILED) {
        const int reason = errno;
        close(file_);
        errno = reason;
        refuse(what);
    }
    data_ = static_cast<char*>(data);
}

SharedPages::~SharedPages() {
    munmap(data_, bytes_);
    close(file_);
}

}  // namespace loratrain
