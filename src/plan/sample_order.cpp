#include "plan/sample_order.h"

#include <numeric>
#include <utility>

#include "base/rng.h"

namespace loratrain {

std::vector<std::int32_t> epoch_order(std::uint64_t seed, std::string_view dataset,
                                      std::int32_t epoch, std::int64_t samples, bool shuffle) {
    std::vector<std::int32_t> order(static_cast<std::size_t>(samples));
    std::iota(order.begin(), order.end(), 0);
    if (!shuffle) return order;
    const std::uint64_t key =
        mix_key(mix_key(seed, hash_name(dataset)), static_cast<std::uint64_t>(epoch));
    for (std::size_t i = order.size(); i > 1; --i) {
        std::swap(order[i - 1], order[uniform_int(key, i, i)]);
    }
    return order;
}

}  // namespace loratrain
