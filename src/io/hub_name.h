#pragma once

#include <string>

namespace loratrain {

/// What to do about a folder that is not here, where its path ends like a model's name on a hub
/// ("org/name", and there is no folder org): ", or, where org/name is a name on a hub, download it
/// first: ...". Else "". It continues a hint (base/error.h). `option`: of hf download, with a blank
/// behind it; `then`: what to do with the folder.
std::string download_hint(const std::string& path, const std::string& option = "",
                          const std::string& then = "give that folder");

/// InputError with `hint` and download_hint() where the path is no directory.
void require_directory(const std::string& path, const std::string& hint);

}  // namespace loratrain
