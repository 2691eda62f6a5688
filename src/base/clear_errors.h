#pragma once

#include <functional>

namespace loratrain {

/// Does `work`. An error of the file system that nobody expects there, as where a path is too long
/// or the working directory has been removed, becomes an InputError where the user can do something
/// about it, else an Error.
void clearly(const std::function<void()>& work);

}  // namespace loratrain
