#include "bench/bench_rates.h"

namespace loratrain {

TokenFlop token_flop(const ModelSpec& model, double sample_tokens) {
    const auto heads = static_cast<double>(model.layers * model.attention().q_size());
    return {4.0 * static_cast<double>(matmul_parameters(model)), 3.0 * 2.0 * heads * sample_tokens};
}

std::optional<double> peak_flop_rate(const std::string& device, DType compute) {
    auto named = [&](const char* part) { return device.find(part) != std::string::npos; };
    const bool hopper = named("H100") || named("H200");
    const bool slower_board = named("PCIe") || named("NVL");
    if (compute != DType::bf16 || !hopper || slower_board) return std::nullopt;
    return 989e12;
}

}  // namespace loratrain
