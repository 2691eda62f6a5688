#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace loratrain {

/// Whole files and directories: read, written so that readers never see a part, copied, removed.

/// The whole file as text. Throws InputError naming the path if it cannot be read.
std::string read_text(const std::string& path);

/// Writes to a temporary name beside `path`, flushes to disk and renames, so that readers see the
/// old file or the whole new one. On failure throws Error (path, reason) and leaves nothing behind.
void write_text_atomic(const std::string& path, const std::string& text);

/// write_text_atomic() without waiting for the disk. If the machine fails soon after, the file may
/// be damaged; for files that are rewritten all the time.
void replace_text(const std::string& path, const std::string& text);

/// write_text_atomic() with a function that writes the file at the path it is given.
void write_file_atomic(const std::string& path,
                       const std::function<void(const std::string& temporary)>& write);

/// Throws InputError naming `path` if no file can be made there: it is a directory or a device, or
/// its folder is missing or not writable.
void check_place_of_file(const std::string& path);

/// Throws Error naming `path` if the disk of its folder, or of the part of it that is there, has
/// fewer bytes free than `needed`.
void check_space(const std::string& path, std::uint64_t needed);

/// Moves the complete directory `temporary` to `path` and removes the directory that was there. One
/// of the two is there at every moment, unless the file system cannot exchange names.
void replace_directory(const std::string& temporary, const std::string& path);

/// Makes the directory of what `write` puts into an empty one beside it, .NAME.tmp, and moves it to
/// `path` (replace_directory()). On failure throws what `write` threw and leaves nothing behind.
using WriteDirectory = std::function<void(const std::string& temporary)>;
void write_directory_atomic(const std::string& path, const WriteDirectory& write);

/// As write_directory_atomic(). Throws InputError naming `path` if it is there meanwhile.
void write_new_directory(const std::string& path, const WriteDirectory& write);

/// Removes a directory that is there. Nobody sees a part of it under its own name.
void remove_directory_atomic(const std::string& path);

/// Removes a directory and its contents, if it is there. Files that cannot be removed stay, with a
/// warning: network file systems keep the names of files that a process has open.
void remove_directory(const std::string& path);

/// Removes the temporary files that writers left in a directory when they died; returns their
/// names.
std::vector<std::string> remove_unfinished_writes(const std::string& dir);
/// Removes the temporary directories that writers left, as remove_directory() does.
void remove_unfinished_directories(const std::string& dir);
/// Removes such files and directories in a directory and all below it; nothing if it is none.
void remove_unfinished_below(const std::string& dir);

/// Throws InputError if the path, or the part of it that is there, is no directory.
void check_place_of_directory(const std::string& path);

/// Creates the directory and its parents. Throws InputError if that fails or it is not writable.
void make_directory(const std::string& path);

/// Copies the bytes of a file into a new file, as write_file_atomic() does, and returns the
/// checksum of the bytes read. Never makes a hard link or a clone, in which one damaged place on
/// the disk would damage both files.
std::string copy_bytes(const std::string& source, const std::string& target);

/// Checksum of a file's contents as 16 hex digits (checksum.h).
std::string file_checksum(const std::string& path);

/// Folders that users give, and names on a hub that they give instead.

/// The end of a hint (base/error.h) about a path that is not there: ", or, where org/name is a name
/// on a hub, download it first: ..." if the path looks like such a name (it ends in "org/name", and
/// there is no folder org), else "". `option`: an option of `hf download`, followed by a blank;
/// `then`: what to do with the downloaded folder.
std::string download_hint(const std::string& path, const std::string& option = "",
                          const std::string& then = "give that folder");

/// Throws InputError with `hint` and download_hint() if the path is no directory, or is one without
/// the files `names`.
void require_directory(const std::string& path, const std::string& hint,
                       const std::vector<std::string>& names = {});

}  // namespace loratrain
