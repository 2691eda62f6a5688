#pragma once

#include <cstddef>
#include <string>

namespace loratrain {

inline constexpr std::size_t longest_adapter_name = 200;

/// Whether an adapter may be called so: the name becomes that of folders and files. Letters,
/// digits, '.', '_' and '-', not '.' or '-' first, at most longest_adapter_name in all.
bool is_adapter_name(const std::string& name);

}  // namespace loratrain
