#pragma once

#include <string>

namespace loratrain {

/// What a program that writes into a directory of its own opens there: plain files alone. A
/// symbolic link would lead out of it, a pipe or a device would never end or wait for ever.

/// Opens with the flags of open(2), for a new file with the usual rights; never waits. InputError
/// where `path` is no plain file (a symbolic link, pipe, socket, device or folder); -1, and errno,
/// where the system refuses.
int open_plain_file(const std::string& path, int flags);

/// What lies at `path` if that is no plain file, as "a symbolic link"; "" = a plain file, or
/// nothing.
std::string not_a_plain_file(const std::string& path);

/// The same, of what must be a folder.
std::string not_a_folder(const std::string& path);

/// Appends a text to a plain file, which is made where there is none. Error: it cannot be written.
void append_to_plain_file(const std::string& path, const std::string& text);

}  // namespace loratrain
