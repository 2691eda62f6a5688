#include "plan/cost/useful_flop.h"

#include "config/linears.h"

namespace loratrain {

TokenFlop token_flop(const ModelSpec& model, double sample_tokens) {
    const auto heads = static_cast<double>(model.layers * model.attention().q_size());
    return {4.0 * static_cast<double>(matmul_parameters(model)), 3.0 * 2.0 * heads * sample_tokens};
}

}  // namespace loratrain
