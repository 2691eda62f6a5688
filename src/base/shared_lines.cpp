#include "base/shared_lines.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <array>

namespace loratrain {

namespace {

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
