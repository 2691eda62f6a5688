#pragma once

#include <cstdint>
#include <string>

#include "base/error.h"

namespace loratrain {

/// Files as bytes: read at any offset, written from start to end.

/// The file is there, but the system does not let it be read now: a network file system in trouble,
/// a missing right. Its contents may be good.
class UnreadableFile : public InputError {
  public:
    using InputError::InputError;
};

/// A regular file open for reading at any offset; reads are thread-safe. Every error is an
/// InputError naming the path, an UnreadableFile if the system refuses.
class InputFile {
  public:
    explicit InputFile(const std::string& path);
    ~InputFile();
    InputFile(const InputFile&) = delete;
    InputFile& operator=(const InputFile&) = delete;

    const std::string& path() const { return path_; }
    std::uint64_t size() const { return size_; }
    /// Text that differs between files and after a change: inode, size, times of the last change.
    std::string identity() const;
    void read(std::uint64_t offset, std::uint64_t bytes, void* target) const;

  private:
    std::string path_;
    int descriptor_ = -1;
    std::uint64_t size_ = 0;
};

/// A new file written from start to end (base/plain_file.h). Every error is an Error naming path
/// and reason.
class OutputFile {
  public:
    explicit OutputFile(const std::string& path);
    ~OutputFile();
    OutputFile(const OutputFile&) = delete;
    OutputFile& operator=(const OutputFile&) = delete;

    void write(const void* data, std::uint64_t bytes);
    /// Closes the file and reports failures of delayed writes; the destructor only releases it.
    void close();

  private:
    std::string path_;
    int descriptor_ = -1;
};

/// Text of errno.
std::string system_reason();

}  // namespace loratrain
