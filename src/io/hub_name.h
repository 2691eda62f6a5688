#pragma once

#include <string>

namespace loratrain {

/// Folders that users give, and names on a hub that they give instead.

/// The end of a hint (base/error.h) about a path that is not there: ", or, where org/name is a name
/// on a hub, download it first: ..." if the path looks like such a name (it ends in "org/name", and
/// there is no folder org), else "". `option`: an option of `hf download`, followed by a blank;
/// `then`: what to do with the downloaded folder.
std::string download_hint(const std::string& path, const std::string& option = "",
                          const std::string& then = "give that folder");

/// Throws InputError with `hint` and download_hint() if the path is no directory.
void require_directory(const std::string& path, const std::string& hint);

}  // namespace loratrain
