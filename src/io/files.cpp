#include "io/files.h"

#include <fcntl.h>
#include <unistd.h>
#include <algorithm>
#include <cctype>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <filesystem>
#include <system_error>

#include "base/error.h"
#include "base/log.h"
#include "base/text.h"
#include "io/checksum.h"
#include "io/raw_file.h"

namespace loratrain {

namespace fs = std::filesystem;

namespace {

constexpr const char* temporary_suffix = ".tmp";
constexpr const char* other_directory_hint = "choose another directory or check its permissions";

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

std::string temporary_name(const std::string& path) {
    // Process ids are the same on several hosts or in several containers.
    const auto moment = std::chrono::system_clock::now().time_since_epoch().count();
    return cat(path, temporary_suffix, ::getpid(), "-", moment);
}

fs::path without_slash(const fs::path& path) {
    return path.has_filename() ? path : path.parent_path();
}

/// Of the directory beside `path`. Programs that look for names such as step-* do not find it.
std::string hidden_name(const std::string& path) {
    const fs::path whole = without_slash(path);
    return (whole.parent_path() / cat(".", whole.filename().string(), temporary_suffix)).string();
}

bool is_temporary(const fs::path& path) {
    return path.extension().string().starts_with(temporary_suffix);
}

/// `finish` moves the temporary directory to its name.
void write_beside(
    const std::string& path, const WriteDirectory& write,
    const std::function<void(const std::string& temporary, const std::string& whole)>& finish) {
    const std::string temporary = hidden_name(path);
    remove_directory(temporary);
    try {
        make_directory(temporary);
        if (!fs::is_empty(temporary)) {
            throw InputError(temporary, "is left from before and cannot be emptied",
                             "remove it, or choose another directory");
        }
        write(temporary);
        finish(temporary, without_slash(path).string());
    } catch (...) {
        remove_directory(temporary);
        throw;
    }
}

std::string folder_of(const std::string& path) {
    const std::string folder = fs::path(path).parent_path().string();
    return folder.empty() ? "." : folder;
}

/// Returns its checksum; `take` gets it block by block, of each the first bytes.
std::string read_through(
    const std::string& path,
    const std::function<void(const std::vector<char>& block, std::uint64_t bytes)>& take) {
    const InputFile file(path);
    Checksum checksum;
    std::vector<char> block(std::size_t{1} << 20U);
    for (std::uint64_t done = 0; done < file.size();) {
        const std::uint64_t bytes = std::min<std::uint64_t>(block.size(), file.size() - done);
        file.read(done, bytes, block.data());
        checksum.update(block.data(), bytes);
        take(block, bytes);
        done += bytes;
    }
    return checksum.hex();
}

void write_text(const std::string& path, const std::string& text) {
    OutputFile file(path);
    file.write(text.data(), text.size());
    file.close();
}

void replace_file(const std::string& path,
                  const std::function<void(const std::string& temporary)>& write) {
    const std::string temporary = temporary_name(path);
    try {
        write(temporary);
        if (std::rename(temporary.c_str(), path.c_str()) != 0) {
            throw Error(path + ": cannot be replaced: " + system_reason());
        }
    } catch (...) {
        ::unlink(temporary.c_str());
        throw;
    }
}

}  // namespace

std::string read_text(const std::string& path) {
    const InputFile file(path);
    std::string text(file.size(), '\0');
    file.read(0, file.size(), text.data());
    return text;
}

void write_text_atomic(const std::string& path, const std::string& text) {
    write_file_atomic(path, [&](const std::string& temporary) { write_text(temporary, text); });
}

void replace_text(const std::string& path, const std::string& text) {
    replace_file(path, [&](const std::string& temporary) { write_text(temporary, text); });
}

void write_file_atomic(const std::string& path,
                       const std::function<void(const std::string& temporary)>& write) {
    replace_file(path, [&](const std::string& temporary) {
        write(temporary);
        flush_to_disk(temporary, O_RDONLY);
    });
    flush_to_disk(folder_of(path), O_RDONLY | O_DIRECTORY);
}

void check_space(const std::string& path, std::uint64_t needed) {
    fs::path there = fs::path(path).parent_path();
    std::error_code unknown;
    while (!there.empty() && !fs::exists(there, unknown)) there = there.parent_path();
    const fs::space_info space = fs::space(there.empty() ? "." : there, unknown);
    if (!unknown && space.available < needed) {
        throw Error(cat(path, ": needs ", human_bytes(needed), ", only ",
                        human_bytes(space.available), " are free on that disk"));
    }
}

void check_place_of_file(const std::string& path) {
    if (fs::is_directory(path)) {
        throw InputError(path, "is a directory", "give the name of the file to be made");
    }
    if (fs::exists(path) && !fs::is_regular_file(path)) {
        throw InputError(path, "is a device, pipe or socket, must be a plain file",
                         "give the name of the file to be made");
    }
    const std::string folder = folder_of(path);
    if (!fs::is_directory(folder)) {
        throw InputError(path, "its folder is not a directory", "create it first");
    }
    if (::access(folder.c_str(), W_OK | X_OK) != 0) {
        throw InputError(path, "its folder is not writable: " + system_reason(),
                         "choose another folder or check its permissions");
    }
}

void check_place_of_directory(const std::string& path) {
    std::error_code unknown;
    fs::path there = fs::absolute(path, unknown).lexically_normal();
    while (!fs::exists(fs::symlink_status(there, unknown)) && there.has_relative_path()) {
        there = there.parent_path();
    }
    if (fs::is_directory(there, unknown) || !fs::exists(there, unknown)) return;
    throw InputError(path,
                     cat("directory cannot be created: ", there.string(), " is not a directory"),
                     other_directory_hint);
}

void make_directory(const std::string& path) {
    check_place_of_directory(path);
    std::error_code error;
    fs::create_directories(path, error);
    if (error) {
        throw InputError(path, "directory cannot be created: " + error.message(),
                         other_directory_hint);
    }
    if (::access(path.c_str(), W_OK | X_OK) != 0) {
        throw InputError(path, "directory is not writable: " + system_reason(),
                         other_directory_hint);
    }
}

void replace_directory(const std::string& temporary, const std::string& path) {
    if (!fs::exists(path)) return fs::rename(temporary, path);
    const bool exchanged =
        ::renameat2(AT_FDCWD, temporary.c_str(), AT_FDCWD, path.c_str(), RENAME_EXCHANGE) == 0;
    if (exchanged) return remove_directory(temporary);
    const std::string former = temporary_name(path);
    fs::rename(path, former);
    try {
        fs::rename(temporary, path);
    } catch (...) {
        fs::rename(former, path);
        throw;
    }
    remove_directory(former);
}

void write_directory_atomic(const std::string& path, const WriteDirectory& write) {
    write_beside(path, write, replace_directory);
}

void write_new_directory(const std::string& path, const WriteDirectory& write) {
    write_beside(path, write, [](const std::string& temporary, const std::string& whole) {
        const int moved =
            ::renameat2(AT_FDCWD, temporary.c_str(), AT_FDCWD, whole.c_str(), RENAME_NOREPLACE);
        if (moved == 0) return;
        if (errno != EINVAL) {
            throw InputError(whole, "cannot be made: " + system_reason(), other_directory_hint);
        }
        fs::rename(temporary, whole);  // a file system without this flag
    });
}

void remove_directory_atomic(const std::string& path) {
    const std::string away = hidden_name(path);
    remove_directory(away);
    fs::rename(path, away);
    remove_directory(away);
}

void remove_directory(const std::string& path) {
    std::error_code error;
    fs::remove_all(path, error);
    if (error) log::warn(cat(path, ": cannot be removed: ", error.message()));
}

std::vector<std::string> remove_unfinished_writes(const std::string& dir) {
    std::vector<std::string> removed;
    for (const auto& entry : fs::directory_iterator(dir)) {
        if (!entry.is_regular_file() || !is_temporary(entry.path())) continue;
        removed.push_back(entry.path().string());
    }
    for (const std::string& path : removed) fs::remove(path);
    return removed;
}

void remove_unfinished_directories(const std::string& dir) {
    std::vector<std::string> unfinished;
    for (const auto& entry : fs::directory_iterator(dir)) {
        const bool temporary = entry.is_directory() && is_temporary(entry.path());
        if (temporary) unfinished.push_back(entry.path().string());
    }
    for (const std::string& path : unfinished) remove_directory(path);
}

void remove_unfinished_below(const std::string& dir) {
    if (!fs::is_directory(dir)) return;
    remove_unfinished_writes(dir);
    remove_unfinished_directories(dir);
    std::vector<std::string> folders;
    for (const auto& entry : fs::directory_iterator(dir)) {
        if (entry.is_directory() && !entry.is_symlink()) folders.push_back(entry.path().string());
    }
    for (const std::string& folder : folders) remove_unfinished_below(folder);
}

std::string copy_bytes(const std::string& source, const std::string& target) {
    std::string checksum;
    write_file_atomic(target, [&](const std::string& temporary) {
        OutputFile out(temporary);
        checksum = read_through(source, [&](const std::vector<char>& block, std::uint64_t bytes) {
            out.write(block.data(), bytes);
        });
        out.close();
    });
    return checksum;
}

std::string file_checksum(const std::string& path) {
    return read_through(path, [](const std::vector<char>&, std::uint64_t) {});
}

namespace {

namespace fs = std::filesystem;

bool is_hub_word(const std::string& word) {
    const auto fits = [](unsigned char c) {
        return std::isalnum(c) != 0 || c == '-' || c == '_' || c == '.';
    };
    return !word.empty() && word.front() != '.' && std::all_of(word.begin(), word.end(), fits);
}

}  // namespace

std::string download_hint(const std::string& path, const std::string& option,
                          const std::string& then) {
    const fs::path full = fs::path(path).lexically_normal();
    const std::string name = full.filename();
    const std::string org = full.parent_path().filename();
    std::error_code unknown;
    const bool here = fs::exists(full.parent_path(), unknown);
    if (here || !is_hub_word(name) || !is_hub_word(org)) return "";
    return cat(", or, where ", org, "/", name,
               " is a name on a hub, download it first: hf download ", option, org, "/", name,
               " --local-dir ", name, ", and ", then);
}

void require_directory(const std::string& path, const std::string& hint,
                       const std::vector<std::string>& names) {
    std::error_code unknown;
    if (!fs::is_directory(path, unknown)) {
        throw InputError(path, "is not a directory", hint + download_hint(path));
    }
    std::vector<std::string> missing;
    for (const std::string& name : names) {
        const fs::file_status file = fs::status(fs::path(path) / name, unknown);
        if (file.type() == fs::file_type::not_found) missing.push_back(name);
    }
    if (!missing.empty()) throw InputError(path, "has no " + join(missing, " and no "), hint);
}

}  // namespace loratrain
