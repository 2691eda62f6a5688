#include "plan/pack/fillings.h"

#include <algorithm>
#include <numeric>
#include <string_view>
#include <vector>

#include "base/text.h"

namespace loratrain {

namespace {

constexpr std::array<std::string_view, 6> filling_words{
    "filled", "filled by MILP", "evened", "streamed", "one adapter a microbatch", "improved"};

}  // namespace

void FillingCounts::add(const FillingCounts& other) {
    for (std::size_t i = 0; i < blocks.size(); ++i) blocks[i] += other.blocks[i];
}

std::int64_t FillingCounts::all() const {
    return std::accumulate(blocks.begin(), blocks.end(), std::int64_t{0});
}

std::string to_text(const FillingCounts& counts) {
    std::vector<std::size_t> most_first(filling_words.size());
    std::iota(most_first.begin(), most_first.end(), 0);
    std::stable_sort(most_first.begin(), most_first.end(), [&](std::size_t a, std::size_t b) {
        return counts.blocks[a] > counts.blocks[b];
    });
    std::vector<std::string> parts;
    for (const std::size_t i : most_first) {
        if (counts.blocks[i] > 0) parts.push_back(cat(counts.blocks[i], " ", filling_words[i]));
    }
    const std::int64_t all = counts.all();
    return all == 0 ? "" : cat(all, all == 1 ? " block: " : " blocks: ", join(parts, ", "));
}

}  // namespace loratrain
