#include "plan/cost/cost_model.h"

#include <gtest/gtest.h>

#include "config/model_presets.h"
#include "plan/cost/device.h"

namespace loratrain {
namespace {

TEST(UsefulFlop, CountFourFlopPerWeightAndCausalAttention) {
    const ModelSpec model = *model_preset("llama-3.1-8b");
    const TokenFlop flop = token_flop(model, 1000);
    const double weights =
        32.0 * (2 * 4096.0 * 4096.0 + 2 * 4096.0 * 1024.0 + 3 * 4096.0 * 14336.0) +
        128256.0 * 4096.0;
    EXPECT_DOUBLE_EQ(flop.weights, 4.0 * weights);
    EXPECT_DOUBLE_EQ(flop.attention, 6.0 * 32.0 * 4096.0 * 1000.0);
}

TEST(UsefulFlop, CountsStatesOfDeltaNets) {
    const ModelSpec model = *model_preset("qwen3.5-27b");
    const TokenFlop flop = token_flop(model, 1000);
    const double mlp = 3 * 5120.0 * 17408.0;
    const double attention = 5120.0 * 256.0 * (2 * 24 + 2 * 4 + 24);
    const double net = 5120.0 * (2 * 16 * 128 + 3 * 48 * 128 + 2 * 48);
    EXPECT_DOUBLE_EQ(flop.weights,
                     4.0 * (64 * mlp + 16 * attention + 48 * net + 248320.0 * 5120.0));
    EXPECT_DOUBLE_EQ(flop.attention, 6.0 * 16 * 24 * 256 * 1000.0 + 18.0 * 48 * 48 * 128.0 * 128.0);
}

TEST(PeakFlopRate, IsTheMakersOfABoardThatIsKnown) {
    EXPECT_EQ(peak_flop_rate("NVIDIA H200", DType::bf16), 989e12);
    EXPECT_EQ(peak_flop_rate("NVIDIA H100 80GB HBM3", DType::bf16), 989e12);
    EXPECT_FALSE(peak_flop_rate("NVIDIA H100 PCIe", DType::bf16));
    EXPECT_FALSE(peak_flop_rate("NVIDIA H200 NVL", DType::bf16));
    EXPECT_EQ(peak_flop_rate("NVIDIA A100-SXM4-80GB", DType::bf16), 312e12);
    EXPECT_EQ(peak_flop_rate("NVIDIA L4", DType::bf16), 121e12);
    EXPECT_FALSE(peak_flop_rate("NVIDIA H100 80GB HBM3 MIG 1g.10gb", DType::bf16));
    EXPECT_FALSE(peak_flop_rate("NVIDIA A10G", DType::bf16));
    EXPECT_FALSE(peak_flop_rate("NVIDIA H200", DType::f32));
    EXPECT_FALSE(peak_flop_rate("", DType::f32));
}

}  // namespace
}  // namespace loratrain
