#include "train/text_order.h"

#include "base/rng.h"

namespace loratrain {

TokenDraw Draw::of_token(std::uint32_t position) const {
    const auto words = philox4x32({position, member, prompt, step}, key);
    const std::uint64_t bits = (std::uint64_t{words[0]} << 32U | words[1]) >> 11U;
    return {temperature, top_p, static_cast<double>(bits) * 0x1p-53};
}

}  // namespace loratrain
