#include "io/locks/file_lock.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <array>
#include <cerrno>

#include "base/error.h"
#include "base/plain_file.h"
#include "io/locks/heartbeat_lock.h"
#include "io/raw_file.h"

namespace loratrain {

namespace {

constexpr std::size_t longest_holder = 255;

/// What a hard link may have put there: locking would empty it.
bool is_longer_than_a_holder(int descriptor) {
    char next = 0;
    return ::pread(descriptor, &next, 1, longest_holder) > 0;
}

std::string holder_text(int descriptor) {
    std::array<char, longest_holder + 1> text{};
    const ssize_t got = ::pread(descriptor, text.data(), text.size() - 1, 0);
    return got > 0 ? text.data() : "";
}

void write_holder(int descriptor) {
    const std::string text = this_process_text().substr(0, longest_holder);
    // The text only helps a person; the lock itself does not depend on it.
    if (::ftruncate(descriptor, 0) != 0) return;
    if (::pwrite(descriptor, text.data(), text.size(), 0) < 0) return;
}

/// As Lustre and NFS say it when they are mounted without locks.
bool means_no_locks(int error) {
    return error == ENOSYS || error == ENOTSUP || error == ENOLCK;
}

}  // namespace

FileLock::FileLock(const std::string& path, const std::string& what) {
    descriptor_ = open_plain_file(path, O_RDWR | O_CREAT);
    if (descriptor_ < 0) {
        throw InputError(path, "lock file cannot be opened: " + system_reason(),
                         "check the directory and its permissions");
    }
    if (::flock(descriptor_, LOCK_EX | LOCK_NB) == 0) {
        if (is_longer_than_a_holder(descriptor_)) {
            ::close(descriptor_);
            throw InputError(path, "is not a lock of loratrain: it is longer than one ever is",
                             "move that file elsewhere, or choose another directory");
        }
        left_behind_ = holder_text(descriptor_);
        write_holder(descriptor_);
        return;
    }
    const int error = errno;
    const std::string reason = system_reason();
    const std::string holder = holder_text(descriptor_);
    ::close(descriptor_);
    descriptor_ = -1;
    if (error == EWOULDBLOCK) throw in_use(path, what, holder);
    if (!means_no_locks(error)) throw Error(path + ": cannot be locked: " + reason);
    heartbeat_ = std::make_unique<HeartbeatLock>(path + ".held", what);
    left_behind_ = heartbeat_->left_behind();
    substitute_ = cat("the file system of ", path, " has no locks (flock: ", reason, "); ",
                      heartbeat_->path(), " with signs of life is used instead");
}

FileLock::~FileLock() {
    if (descriptor_ < 0) return;
    // An empty file says that the holder has ended in order.
    if (::ftruncate(descriptor_, 0) != 0) left_behind_.clear();
    ::close(descriptor_);
}

}  // namespace loratrain
