#include "config/adapter_name.h"

#include <algorithm>
#include <cctype>

namespace loratrain {

bool is_adapter_name(const std::string& name) {
    const auto allowed = [](unsigned char c) {
        return std::isalnum(c) != 0 || c == '.' || c == '_' || c == '-';
    };
    return !name.empty() && name.size() <= longest_adapter_name && name.front() != '.' &&
           name.front() != '-' && std::all_of(name.begin(), name.end(), allowed);
}

}  // namespace loratrain
