#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace loratrain {

/// Whole file as text; throws InputError naming the path when it cannot be read.
std::string read_text(const std::string& path);

/// Writes to a temporary name beside `path`, flushes to disk, renames: readers see the old file or
/// the whole new one. Throws Error (path, reason) and leaves nothing behind on failure.
void write_text_atomic(const std::string& path, const std::string& text);

/// The same without waiting for the disk: where the machine fails soon after, the file may be
/// damaged. For what is written anew all the time.
void replace_text(const std::string& path, const std::string& text);

/// As write_text_atomic, for a writer that produces the file at the path it is given.
void write_file_atomic(const std::string& path,
                       const std::function<void(const std::string& temporary)>& write);

/// Throws InputError naming `path` where no file can be made: a directory, a device, in a folder
/// that is not there or not writable.
void check_place_of_file(const std::string& path);

/// The complete directory `temporary` becomes `path`; what was there is removed. At no moment is
/// there neither, unless the file system cannot exchange names.
void replace_directory(const std::string& temporary, const std::string& path);

/// Removes a directory with all it holds, if it is there. What cannot be removed stays, with a
/// warning: network file systems keep the names of files that somebody has open.
void remove_directory(const std::string& path);

/// Removes the temporary files that writers which died have left in a directory; returns them.
std::vector<std::string> remove_unfinished_writes(const std::string& dir);
/// The same for temporary directories, as remove_directory does.
void remove_unfinished_directories(const std::string& dir);
/// Both, in a directory and all below it; nothing where it is none.
void remove_unfinished_below(const std::string& dir);

/// Creates the directory and its parents; throws InputError (cannot be created or is not writable).
void make_directory(const std::string& path);

/// Copies the bytes of a file into a new one of its own, as write_file_atomic does: never a hard
/// link or a clone, in which one damaged place on the disk damages both. Returns the checksum of
/// what was read.
std::string copy_bytes(const std::string& source, const std::string& target);

/// XXH64-like 64-bit checksum of a file's contents as 16 hex digits (see checksum.h).
std::string file_checksum(const std::string& path);

}  // namespace loratrain
