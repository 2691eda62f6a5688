#include "io/files.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <filesystem>
#include <system_error>
#include <vector>

#include "base/error.h"
#include "io/checksum.h"
#include "io/raw_file.h"

namespace loratrain {

namespace fs = std::filesystem;

namespace {

constexpr const char* temporary_suffix = ".tmp";

void flush_to_disk(const std::string& path, int flags) {
    const int descriptor = ::open(path.c_str(), flags | O_CLOEXEC);
    if (descriptor < 0) throw Error(path + ": cannot be opened: " + system_reason());
    const bool flushed = ::fsync(descriptor) == 0;
    // Some network file systems do not know fsync of a directory.
    const bool unsupported = errno == EINVAL || errno == ENOTSUP;
    const std::string reason = flushed ? "" : system_reason();
    ::close(descriptor);
    if (!flushed && !unsupported) throw Error(path + ": cannot be flushed to disk: " + reason);
}

std::string folder_of(const std::string& path) {
    const std::string folder = fs::path(path).parent_path().string();
    return folder.empty() ? "." : folder;
}

}  // namespace

std::string read_text(const std::string& path) {
    const InputFile file(path);
    std::string text(file.size(), '\0');
    file.read(0, file.size(), text.data());
    return text;
}

void write_text_atomic(const std::string& path, const std::string& text) {
    write_file_atomic(path, [&](const std::string& temporary) {
        OutputFile file(temporary);
        file.write(text.data(), text.size());
        file.close();
    });
}

void write_file_atomic(const std::string& path,
                       const std::function<void(const std::string& temporary)>& write) {
    // Process ids are the same on several hosts or in several containers.
    const auto moment = std::chrono::system_clock::now().time_since_epoch().count();
    const std::string temporary = cat(path, temporary_suffix, ::getpid(), "-", moment);
    try {
        write(temporary);
        flush_to_disk(temporary, O_RDONLY);
        if (std::rename(temporary.c_str(), path.c_str()) != 0) {
            throw Error(path + ": cannot be replaced: " + system_reason());
        }
    } catch (...) {
        ::unlink(temporary.c_str());
        throw;
    }
    flush_to_disk(folder_of(path), O_RDONLY | O_DIRECTORY);
}

void make_directory(const std::string& path) {
    std::error_code error;
    fs::create_directories(path, error);
    if (error) {
        throw InputError(path, "directory cannot be created: " + error.message(),
                         "choose another directory or check its permissions");
    }
    if (::access(path.c_str(), W_OK | X_OK) != 0) {
        throw InputError(path, "directory is not writable: " + system_reason(),
                         "choose another directory or check its permissions");
    }
}

void replace_directory(const std::string& temporary, const std::string& path) {
    if (fs::exists(path)) {
        const bool exchanged =
            ::renameat2(AT_FDCWD, temporary.c_str(), AT_FDCWD, path.c_str(), RENAME_EXCHANGE) == 0;
        fs::remove_all(exchanged ? temporary : path);
        if (exchanged) return;
    }
    fs::rename(temporary, path);
}

std::vector<std::string> remove_unfinished_writes(const std::string& dir) {
    std::vector<std::string> removed;
    for (const auto& entry : fs::directory_iterator(dir)) {
        const std::string extension = entry.path().extension().string();
        if (!entry.is_regular_file() || !extension.starts_with(temporary_suffix)) continue;
        removed.push_back(entry.path().string());
    }
    for (const std::string& path : removed) fs::remove(path);
    return removed;
}

std::string file_checksum(const std::string& path) {
    const InputFile file(path);
    Checksum checksum;
    std::vector<char> block(std::size_t{1} << 20U);
    for (std::uint64_t done = 0; done < file.size();) {
        const std::uint64_t bytes = std::min<std::uint64_t>(block.size(), file.size() - done);
        file.read(done, bytes, block.data());
        checksum.update(block.data(), bytes);
        done += bytes;
    }
    return checksum.hex();
}

}  // namespace loratrain
