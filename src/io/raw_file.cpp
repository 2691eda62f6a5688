#include "io/raw_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <system_error>

#include "base/plain_file.h"

namespace loratrain {

namespace {

// Linux moves at most 2^31 - 4096 bytes per call.
constexpr std::uint64_t largest_transfer = 1U << 30U;

}  // namespace

std::string system_reason() {
    return std::generic_category().message(errno);
}

InputFile::InputFile(const std::string& path) : path_(path) {
    // A pipe is refused below; opening it must not wait for its other end.
    descriptor_ = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (descriptor_ < 0 && (errno == ENOENT || errno == ENOTDIR)) {
        throw InputError(path, "cannot be read: " + system_reason(), "check the path");
    }
    if (descriptor_ < 0) {
        throw UnreadableFile(path, "cannot be read: " + system_reason(),
                             "check the file system and the file's permissions");
    }
    struct stat status {};
    const bool known = ::fstat(descriptor_, &status) == 0;
    if (!known || !S_ISREG(status.st_mode)) {
        ::close(descriptor_);
        throw InputError(path, "is not a regular file", "give the path of a file");
    }
    size_ = static_cast<std::uint64_t>(status.st_size);
}

InputFile::~InputFile() {
    ::close(descriptor_);
}

std::string InputFile::identity() const {
    struct stat status {};
    if (::fstat(descriptor_, &status) != 0) {
        throw UnreadableFile(path_, "its times cannot be read: " + system_reason());
    }
    const auto nanoseconds = [](const timespec& time) {
        return cat(time.tv_sec, ".", time.tv_nsec);
    };
    return cat(status.st_ino, " ", status.st_size, " ", nanoseconds(status.st_mtim), " ",
               nanoseconds(status.st_ctim));
}

void InputFile::read(std::uint64_t offset, std::uint64_t bytes, void* target) const {
    auto* out = static_cast<char*>(target);
    while (bytes > 0) {
        const ssize_t got = ::pread(descriptor_, out, std::min(bytes, largest_transfer),
                                    static_cast<off_t>(offset));
        if (got < 0 && errno == EINTR) continue;
        if (got < 0) {
            const std::string reason = system_reason();
            throw UnreadableFile(path_, cat("reading failed at byte ", offset, ": ", reason),
                                 "check the disk and the file");
        }
        if (got == 0) {
            throw InputError(path_, cat("ends at byte ", offset, ", ", bytes, " bytes too early"),
                             "the file is truncated or was changed while in use; copy it again");
        }
        out += got;
        offset += static_cast<std::uint64_t>(got);
        bytes -= static_cast<std::uint64_t>(got);
    }
}

OutputFile::OutputFile(const std::string& path) : path_(path) {
    descriptor_ = open_plain_file(path, O_WRONLY | O_CREAT | O_TRUNC);
    if (descriptor_ < 0) throw Error(path + ": cannot be created: " + system_reason());
}

OutputFile::~OutputFile() {
    if (descriptor_ >= 0) ::close(descriptor_);
}

void OutputFile::write(const void* data, std::uint64_t bytes) {
    const auto* in = static_cast<const char*>(data);
    while (bytes > 0) {
        const ssize_t put = ::write(descriptor_, in, std::min(bytes, largest_transfer));
        if (put < 0 && errno == EINTR) continue;
        if (put < 0) throw Error(path_ + ": writing failed: " + system_reason());
        in += put;
        bytes -= static_cast<std::uint64_t>(put);
    }
}

void OutputFile::close() {
    const int descriptor = descriptor_;
    descriptor_ = -1;
    if (::close(descriptor) != 0) throw Error(path_ + ": writing failed: " + system_reason());
}

}  // namespace loratrain
