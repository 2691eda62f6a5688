#pragma once

#include <cstddef>
#include <string>

namespace loratrain {

inline constexpr std::size_t longest_adapter_name = 200;

/// Whether an adapter may have this name, which folders and files get too: letters, digits, '.',
/// '_' and '-', not '.' or '-' first, at most longest_adapter_name bytes.
bool is_adapter_name(const std::string& name);

}  // namespace loratrain
