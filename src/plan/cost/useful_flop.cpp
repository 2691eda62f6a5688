#include "plan/cost/useful_flop.h"

#include "config/linears.h"

namespace loratrain {

TokenFlop token_flop(const ModelSpec& model, double sample_tokens) {
    double attention = 0.0;
    for_layers(model, 0, model.layers, [&](const LayerSpec& layer, std::int64_t number) {
        const auto layers = static_cast<double>(number);
        if (const AttentionSpec* of = layer.if_attention()) {
            attention += 2.0 * layers * static_cast<double>(of->q_size()) * sample_tokens;
        } else if (const DeltaNetSpec* net = layer.delta_net()) {
            attention += 6.0 * layers * static_cast<double>(net->state_size());
        }
    });
    return {4.0 * static_cast<double>(matmul_parameters(model)), 3.0 * attention};
}

}  // namespace loratrain
