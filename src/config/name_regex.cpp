#include "config/name_regex.h"

#include "base/text.h"

namespace loratrain {

std::regex name_regex(const std::string& pattern) {
#ifdef __GLIBCXX__
    return std::regex(pattern, std::regex::ECMAScript | std::regex_constants::__polynomial);
#else
    return std::regex(pattern, std::regex::ECMAScript);
#endif
}

std::regex name_end_regex(const std::string& pattern) {
    return name_regex(cat("(?:.*\\.)?(?:", pattern, ")"));
}

}  // namespace loratrain
