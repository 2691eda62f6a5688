#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

namespace loratrain {

/// Files that the program writes: plain files in its own directories, and files of lines
/// that several processes share.
///
/// Only plain files are opened in the program's directories: a symbolic link would lead out of
/// them, and reading a pipe or a device might never end.

/// Opens `path` with the flags of open(2); never blocks. A new file gets the usual rights (0666
/// less the umask). Returns -1 and sets errno if the system refuses. Throws InputError if `path` is
/// no plain file (a symbolic link, pipe, socket, device or folder).
int open_plain_file(const std::string& path, int flags);

/// The kind of what lies at `path` ("a symbolic link") if it is no plain file; "" for a plain file
/// and for nothing.
std::string not_a_plain_file(const std::string& path);

/// The kind of what lies at `path` if it is no folder; "" for a folder and for nothing.
std::string not_a_folder(const std::string& path);

/// Appends to a plain file, which is created if there is none. Throws Error if it cannot be
/// written.
void append_to_plain_file(const std::string& path, const std::string& text);

/// A text file to which processes append lines, and from which each reads the others' lines.
/// Appending is exclusive (flock) where the file system supports that, so a process sees every line
/// of the others before it appends its own. No failure is an error: a file that cannot be read has
/// no lines, and nothing is appended to one that cannot be written.
class SharedLines {
  public:
    explicit SharedLines(std::string path) : path_(std::move(path)) {}  ///< "" = no file

    /// Whole lines that were appended since the last read() or append(), in order.
    std::vector<std::string> read();
    /// Locks the file, hands `decide` the lines that read() would return, and appends the line that
    /// `decide` returns, unless it is empty. This object does not read that line again.
    void append(const std::function<std::string(const std::vector<std::string>&)>& decide);

  private:
    std::vector<std::string> read_from(int descriptor);

    std::string path_;
    std::int64_t read_ = 0;  ///< bytes
};

}  // namespace loratrain
