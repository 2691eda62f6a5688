#include "io/tokens/token_weights.h"

#include <algorithm>

namespace loratrain {

bool is_weight(double value) {
    return value == 0.0 || (value >= smallest_weight && value <= largest_weight);
}

std::optional<std::size_t> first_bad_weight(std::span<const float> values) {
    const auto bad = std::find_if_not(values.begin(), values.end(),
                                      [](float value) { return is_weight(double{value}); });
    if (bad == values.end()) return std::nullopt;
    return static_cast<std::size_t>(bad - values.begin());
}

void settle_weights(TokenSample& sample) {
    bool all_one = true;
    for (std::size_t t = 0; t < sample.weights.size(); ++t) {
        if (sample.weights[t] == 0.0F) sample.labels[t] = no_target;
        if (sample.labels[t] == no_target) sample.weights[t] = 1.0F;
        all_one = all_one && sample.weights[t] == 1.0F;
    }
    if (all_one) sample.weights.clear();
}

}  // namespace loratrain
