#include "train/text_order.h"

#include <algorithm>

#include "base/error.h"
#include "base/rng.h"

namespace loratrain {

TokenDraw Draw::of_token(std::uint32_t position) const {
    const auto words = philox4x32({position, member, prompt, step}, key);
    const std::uint64_t bits = (std::uint64_t{words[0]} << 32U | words[1]) >> 11U;
    return {temperature, top_p, static_cast<double>(bits) * 0x1p-53};
}

std::vector<std::vector<std::size_t>> deal_texts(std::span<const TextOrder> orders,
                                                 std::span<const std::int64_t> most_tokens) {
    std::vector<std::vector<std::size_t>> of_replicas(most_tokens.size());
    std::size_t next = 0;
    for (std::size_t i = 0; i < orders.size(); ++i) {
        const std::int64_t tokens = std::ssize(orders[i].prompt.tokens);
        LORATRAIN_CHECK(tokens <= *std::ranges::max_element(most_tokens), "the prompt of sample ",
                        orders[i].prompt.sample, " has ", tokens,
                        " tokens, more than a microbatch of any replica");
        while (tokens > most_tokens[next]) next = (next + 1) % most_tokens.size();
        of_replicas[next].push_back(i);
        next = (next + 1) % most_tokens.size();
    }
    return of_replicas;
}

}  // namespace loratrain
