#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace loratrain {

/// A text file that processes append lines to and read each other's from. Appending is exclusive
/// (flock), where the file system has that: who looks for a line before it appends one finds what
/// others have appended. A file that cannot be read has no lines, to one that cannot be written
/// nothing is appended: neither is an error.
class SharedLines {
  public:
    explicit SharedLines(std::string path) : path_(std::move(path)) {}  ///< "" = no file

    /// Whole lines that were appended since the last call of read() or append(), in order.
    std::vector<std::string> read();
    /// The same with the file locked; the line that `decide` makes of them is appended, unless it
    /// is empty. What is appended is not read again.
    void append(const std::function<std::string(const std::vector<std::string>&)>& decide);

  private:
    std::vector<std::string> read_from(int descriptor);

    std::string path_;
    std::int64_t read_ = 0;  ///< bytes
};

}  // namespace loratrain
