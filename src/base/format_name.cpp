#include "base/format_name.h"

#include <algorithm>

#include "base/error.h"

namespace loratrain {

void check_format(const std::string& where, std::string_view found,
                  std::initializer_list<std::string_view> known, const std::string& hint) {
    if (std::find(known.begin(), known.end(), found) != known.end()) return;
    std::vector<std::string> names;
    for (const std::string_view name : known) names.push_back(cat("'", name, "'"));
    throw InputError(where, cat("has format '", found, "', must be ", join(names, " or ")), hint);
}

}  // namespace loratrain
