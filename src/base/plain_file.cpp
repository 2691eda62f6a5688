#include "base/plain_file.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <optional>
#include <system_error>

#include "base/error.h"

namespace loratrain {

namespace {

constexpr mode_t usual_rights = 0666;

/// None where there is nothing.
std::optional<mode_t> mode_of(const std::string& path) {
    struct stat status {};
    if (::lstat(path.c_str(), &status) != 0) return std::nullopt;
    return status.st_mode;
}

std::string kind_word(mode_t mode) {
    if (S_ISREG(mode)) return "a file";
    if (S_ISDIR(mode)) return "a folder";
    if (S_ISLNK(mode)) return "a symbolic link";
    if (S_ISFIFO(mode)) return "a pipe";
    if (S_ISSOCK(mode)) return "a socket";
    return "a device";
}

[[noreturn]] void refuse(const std::string& path, const std::string& kind) {
    throw InputError(path, cat("is ", kind, ", must be a plain file"),
                     "remove it: a plain file is made in its place");
}

std::string reason_of(int error) {
    return std::generic_category().message(error);
}

/// Everything from `begin` on.
std::string text_from(int descriptor, std::int64_t begin) {
    std::string text;
    std::array<char, 65536> block{};
    for (;;) {
        const auto position = static_cast<off_t>(begin + static_cast<std::int64_t>(text.size()));
        const ssize_t got = ::pread(descriptor, block.data(), block.size(), position);
        if (got <= 0) return text;
        text.append(block.data(), static_cast<std::size_t>(got));
    }
}

}  // namespace

std::string not_a_plain_file(const std::string& path) {
    const std::optional<mode_t> mode = mode_of(path);
    return !mode || S_ISREG(*mode) ? "" : kind_word(*mode);
}

std::string not_a_folder(const std::string& path) {
    const std::optional<mode_t> mode = mode_of(path);
    return !mode || S_ISDIR(*mode) ? "" : kind_word(*mode);
}

int open_plain_file(const std::string& path, int flags) {
    // Opening some devices does something; the flags hold for what takes its place meanwhile.
    if (const std::string kind = not_a_plain_file(path); !kind.empty()) refuse(path, kind);
    const int descriptor =
        ::open(path.c_str(), flags | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC, usual_rights);
    if (descriptor < 0) return -1;
    struct stat status {};
    if (::fstat(descriptor, &status) == 0 && S_ISREG(status.st_mode)) return descriptor;
    ::close(descriptor);
    refuse(path, kind_word(status.st_mode));
}

void append_to_plain_file(const std::string& path, const std::string& text) {
    const int descriptor = open_plain_file(path, O_WRONLY | O_CREAT | O_APPEND);
    if (descriptor < 0) throw Error(cat(path, ": cannot be opened: ", reason_of(errno)));
    const char* data = text.data();
    std::size_t left = text.size();
    int error = 0;
    while (left > 0 && error == 0) {
        const ssize_t put = ::write(descriptor, data, left);
        if (put < 0 && errno != EINTR) error = errno;
        if (put <= 0) continue;
        data += put;
        left -= static_cast<std::size_t>(put);
    }
    if (::close(descriptor) != 0 && error == 0) error = errno;
    if (error != 0) throw Error(cat(path, ": cannot be written: ", reason_of(error)));
}

std::vector<std::string> SharedLines::read_from(int descriptor) {
    const std::string text = text_from(descriptor, read_);
    std::vector<std::string> lines;
    std::size_t begin = 0;
    for (std::size_t end = text.find('\n'); end != std::string::npos;
         end = text.find('\n', begin)) {
        lines.push_back(text.substr(begin, end - begin));
        begin = end + 1;
    }
    read_ += static_cast<std::int64_t>(begin);
    return lines;
}

std::vector<std::string> SharedLines::read() {
    if (path_.empty()) return {};
    const int descriptor = ::open(path_.c_str(), O_RDONLY | O_CLOEXEC);
    if (descriptor < 0) return {};
    std::vector<std::string> lines = read_from(descriptor);
    ::close(descriptor);
    return lines;
}

void SharedLines::append(
    const std::function<std::string(const std::vector<std::string>&)>& decide) {
    constexpr int flags = O_RDWR | O_CREAT | O_APPEND | O_CLOEXEC;
    const int descriptor = path_.empty() ? -1 : ::open(path_.c_str(), flags, 0666);
    if (descriptor < 0) {
        static_cast<void>(decide(read()));
        return;
    }
    static_cast<void>(::flock(descriptor, LOCK_EX));  // without locks lines may come twice
    std::string line = decide(read_from(descriptor));
    if (!line.empty()) {
        // A writer that died may have left a part of a line.
        if (!text_from(descriptor, read_).empty()) line.insert(0, "\n");
        line += '\n';
        if (::write(descriptor, line.data(), line.size()) == static_cast<ssize_t>(line.size())) {
            read_ = ::lseek(descriptor, 0, SEEK_END);
        }
    }
    ::close(descriptor);
}

}  // namespace loratrain
