#include "support/backend_case.h"
#include "support/device_data.h"
#include "support/lora_linear.h"
#include "support/packed_samples.h"

namespace loratrain {
namespace {

using reference::HostMatrix;

/// What the LoRA operators make of two adapters with these ranks, and of `tokens` rows.
Outputs lora_outputs(Backend& backend, const std::vector<std::int32_t>& ranks, std::int32_t tokens,
                     std::uint32_t dropout) {
    const auto random = [&](std::int64_t cols, std::uint64_t seed) {
        return reference::random_matrix(tokens, cols, seed, backend.compute_dtype());
    };
    const LoraLinear linear(backend, 704, 608, ranks, dropout, 1);
    const PackedSamples samples(backend, {tokens - 700, 700});
    const std::int32_t middle = tokens / 2 - 10;
    const std::vector<LoraSegment> segments{{1, 0, middle, 0}, {0, middle, tokens, 0}};
    const LoraRows rows{segments, samples.rows()};
    const DeviceMatrix x(backend, random(704, 1));
    const DeviceMatrix y(backend, random(608, 2));
    return lora_outputs(backend, linear, rows, x, y);
}

/// The same calls give the same bits.
class RepeatTest : public BackendTest {
  protected:
    Outputs lora(std::uint32_t dropout) { return lora_outputs(backend(), {16, 24}, 1600, dropout); }

    Outputs gemm_loss_and_norms() {
        const DeviceMatrix a(backend(), random(300, 1040, 1));
        const DeviceMatrix b(backend(), random(3000, 1040, 2));
        const DeviceMatrix logits(backend(), HostMatrix(300, 3000));
        backend().gemm({a.view(), b.view(), logits.view(), false, true});
        const DeviceVector<std::int32_t> targets(backend(), std::vector<std::int32_t>(300, 7));
        const DeviceVector<std::int32_t> bins(backend(), std::vector<std::int32_t>(300, 0));
        const DeviceVector<float> scales(backend(), std::vector<float>(300, 0.3F));
        const DeviceVector<double> losses(backend(), {0.0});
        const DeviceVector<double> wrong(backend(), {0.0});
        backend().cross_entropy({logits.view(), targets.data(), scales.data(), bins.data(),
                                 losses.data(), wrong.data(), true});
        const DeviceVector<float> values =
            device_floats(backend(), reference::random_matrix(1, 100001, 4));
        const DeviceVector<double> sum(backend(), {0.0});
        backend().sum_squares({values.data(), 100001, sum.data()});
        return {logits.download().values, losses.download(), wrong.download(), sum.download()};
    }
};

TEST_P(RepeatTest, LoraOperators) {
    for (const std::uint32_t dropout : {0U, 10000U}) EXPECT_EQ(lora(dropout), lora(dropout));
}

TEST_P(RepeatTest, GemmLossAndNorms) {
    EXPECT_EQ(gemm_loss_and_norms(), gemm_loss_and_norms());
}

LORATRAIN_FOR_EACH_BACKEND_AND_LIMIT(RepeatTest);

/// Less shared memory makes other tiles, but for ranks that need several passes the same sums.
TEST(SharedLimitTest, ChangesNoBitOfLora) {
    if (const std::string missing = missing_cuda(); !missing.empty()) GTEST_SKIP() << missing;
    const auto whole = make_backend("cuda", {1, 0, DType::bf16});
    for (const BackendCase& limited : shared_limit_cases()) {
        const auto backend = limited.make();
        for (const std::vector<std::int32_t>& ranks :
             {std::vector{8, 16}, std::vector{24, 32}, std::vector{40, 16}, std::vector{64, 48},
              std::vector{80, 16}}) {
            for (const std::int32_t tokens : {1600, 4800}) {
                for (const std::uint32_t dropout : {0U, 10000U}) {
                    EXPECT_EQ(lora_outputs(*backend, ranks, tokens, dropout),
                              lora_outputs(*whole, ranks, tokens, dropout))
                        << limited << ", ranks " << ranks[0] << " and " << ranks[1] << ", "
                        << tokens << " tokens, dropout " << dropout;
                }
            }
        }
    }
}

}  // namespace
}  // namespace loratrain
