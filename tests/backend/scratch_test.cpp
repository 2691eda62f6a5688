#include <algorithm>

#include "kernels/lora/lora_sizes.h"
#include "support/backend_case.h"
#include "support/device_data.h"
#include "support/lora_linear.h"
#include "support/packed_samples.h"

namespace loratrain {
namespace {

using reference::HostMatrix;

/// What the formulas in kernels/ say of an operator, by which the plan counts, is what the CUDA
/// backend allocates for it, whatever the number of multiprocessors.
class ScratchTest : public BackendTest {
  protected:
    void SetUp() override {
        if (backend().native_stream() == nullptr) GTEST_SKIP() << "a GPU's";
    }

    /// `run` allocates nothing after scratch of so many bytes.
    template <class Run>
    void expect_enough(const ScratchSizes& sizes, const Run& run) {
        backend().prepare_scratch(sizes);
        const std::size_t before = backend().memory().current;
        run();
        EXPECT_EQ(backend().memory().current, before);
    }
};

/// Of lora_shrink, lora_backward and lora_grad_a of one linear, in bf16.
std::size_t lora_bytes(std::int64_t in, std::int64_t out, const std::vector<std::int32_t>& ranks,
                       const std::vector<std::int64_t>& parts) {
    kernels::LoraRowCuts cuts{0, parts.data(), static_cast<int>(parts.size())};
    for (const std::int64_t part : parts) cuts.rows += part;
    std::int64_t copied = 0;
    for (const std::int32_t rank : ranks) {
        copied += round_up(rank, kernels::lora_copy_row_multiple);
    }
    const std::int32_t largest = *std::ranges::max_element(ranks);
    const std::int64_t rounded = round_up(largest, kernels::lora_pass_rank_multiple);
    const kernels::LoraOutputs dy{cuts.rows, &out, 1};
    std::int64_t most = kernels::lora_copy_bytes(copied, in);
    for (int processors = 1; processors <= 192; ++processors) {
        const std::int32_t rows = kernels::lora_gradient_tile_rows(
            cuts, kernels::pieces(in, kernels::lora_pass_columns), processors);
        most = std::max(most, kernels::lora_grad_a_bytes(count_tiles(cuts, rows), rounded, in));
        const kernels::LoraBackwardCut cut =
            kernels::lora_backward_cut(dy, largest, cuts, processors);
        most = std::max(most, kernels::lora_backward_bytes(count_tiles(cuts, cut.tile_rows),
                                                           dy.parts(cut.part_columns), rounded,
                                                           dy.columns(), dy.rows));
    }
    return static_cast<std::size_t>(most);
}

TEST_P(ScratchTest, OfLoraIsWhatItsFormulasSay) {
    constexpr std::int32_t tokens = 1600;
    constexpr std::int32_t first = 900;
    for (const std::vector<std::int32_t>& ranks :
         {std::vector<std::int32_t>{8, 16}, {16, 24}, {100, 3}}) {
        for (const std::int64_t out : {608, 9000}) {
            const LoraLinear linear(backend(), 704, out, ranks, 0, 1);
            const PackedSamples samples(backend(), {first, tokens - first});
            const std::vector<LoraSegment> segments{{1, 0, first, 0}, {0, first, tokens, 0}};
            const LoraRows rows{segments, samples.rows()};
            const DeviceMatrix x(backend(), random(tokens, 704, 1));
            const DeviceMatrix y(backend(), random(tokens, out, 2));
            const DeviceMatrix s(backend(), HostMatrix(tokens, linear.columns()));
            const DeviceMatrix ds(backend(), HostMatrix(tokens, linear.columns()));
            const LoraTarget forward = linear.target(s.view());
            const LoraTarget backward = linear.target(ds.view());
            const bool tensor_cores = dtype() == DType::bf16;
            const std::size_t bytes =
                tensor_cores ? lora_bytes(704, out, ranks, {first, tokens - first}) : 0;
            expect_enough({.operators = bytes}, [&] {
                backend().lora_shrink({x.view(), {&forward, 1}, rows});
                backend().lora_backward({y.view(), forward, ds.view(), rows});
                backend().lora_grad_a({x.view(), {&backward, 1}, rows});
            });
        }
    }
}

TEST_P(ScratchTest, OfTheLossAndTheOptimizer) {
    constexpr std::int64_t rows = 3000;
    const DeviceMatrix logits(backend(), random(rows, 40, 1));
    const DeviceVector<std::int32_t> targets(backend(), std::vector<std::int32_t>(rows, 7));
    const DeviceVector<std::int32_t> bins(backend(), std::vector<std::int32_t>(rows, 0));
    const DeviceVector<float> scales(backend(), std::vector<float>(rows, 0.3F));
    const DeviceVector<double> sums(backend(), {0.0, 0.0});
    const std::int64_t bytes =
        std::max(rows * kernels::cross_entropy_row_bytes, kernels::sum_squares_bytes);
    expect_enough({.operators = static_cast<std::size_t>(bytes)}, [&] {
        backend().cross_entropy({logits.view(), targets.data(), scales.data(), bins.data(),
                                 sums.data(), sums.data() + 1, true});
        backend().sum_squares({scales.data(), rows, sums.data()});
    });
}

TEST_P(ScratchTest, OfAttention) {
    constexpr std::int64_t heads = 4;
    constexpr std::int64_t dim = 64;
    const std::vector<std::int32_t> lengths{700, 1, 33, 2000};
    const PackedSamples samples(backend(), lengths);
    const std::int64_t tokens = samples.rows().tokens;
    const DeviceMatrix q(backend(), random(tokens, heads * dim, 1));
    const DeviceMatrix other(backend(), random(tokens, heads * dim, 2));
    const DeviceMatrix dq(backend(), random(tokens, heads * dim, 3));
    const DeviceMatrix dk(backend(), random(tokens, heads * dim, 4));
    const DeviceMatrix dv(backend(), random(tokens, heads * dim, 5));
    const DeviceVector<float> lse(
        backend(), std::vector<float>(static_cast<std::size_t>(tokens * heads), 1.0F));
    const Attention op{q.view(),   q.view(), q.view(), other.view(),
                       lse.data(), dim,      0.125F,   samples.rows()};
    const auto tiles =
        tokens / kernels::attention_least_rows + static_cast<std::int64_t>(lengths.size());
    const ScratchSizes sizes{
        .attention_rows = static_cast<std::size_t>(tokens * heads * kernels::attention_row_bytes),
        .attention_tiles = 3 * static_cast<std::size_t>(tiles * kernels::attention_tile_bytes)};
    expect_enough(sizes, [&] {
        backend().attention(op);
        backend().attention_backward({op, other.view(), dq.view(), dk.view(), dv.view()});
    });
}

LORATRAIN_FOR_EACH_BACKEND(ScratchTest);

}  // namespace
}  // namespace loratrain
