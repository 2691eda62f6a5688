#include "base/some_of.h"

#include "base/text.h"

namespace loratrain {

std::string some_of(const std::vector<std::string>& words, std::size_t most) {
    if (words.size() <= most) return join(words, ", ");
    const std::vector<std::string> first(words.data(), words.data() + most);
    return cat(join(first, ", "), " and ", words.size() - most, " more");
}

}  // namespace loratrain
