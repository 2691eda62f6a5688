#include <gtest/gtest.h>

#include "backend/make_backend.h"
#include "support/device_data.h"
#include "support/lora_linear.h"
#include "support/packed_samples.h"

namespace loratrain {
namespace {

using reference::HostMatrix;
using reference::random_matrix;

/// Runs `ops` with 1, 2 and 3 threads: all downloads must agree bit by bit.
template <class Ops>
void expect_same_for_any_threads(const Ops& ops) {
    const auto run = [&](int threads) {
        const auto backend = make_backend("cpu", {threads, 0});
        return Outputs(ops(*backend));
    };
    const Outputs one = run(1);
    EXPECT_EQ(run(2), one);
    EXPECT_EQ(run(3), one);
}

TEST(ThreadIndependence, Gemm) {
    expect_same_for_any_threads([](Backend& backend) {
        Outputs outputs;
        for (const std::int64_t m : {16, 500}) {
            for (const std::int64_t n : {16, 1000}) {
                for (const std::int64_t k : {16, 3000}) {
                    const DeviceMatrix a(backend, random_matrix(m, k, 1));
                    const DeviceMatrix b(backend, random_matrix(n, k, 2));
                    const DeviceMatrix c(backend, HostMatrix(m, n));
                    backend.gemm({a.view(), b.view(), c.view(), false, true});
                    outputs.push_back(c.download().values);
                }
            }
        }
        return outputs;
    });
}

TEST(ThreadIndependence, Attention) {
    expect_same_for_any_threads([](Backend& backend) {
        const PackedSamples samples(backend, {700, 3, 65});
        const DeviceMatrix q(backend, random_matrix(768, 128, 1));
        const DeviceMatrix k(backend, random_matrix(768, 64, 2));
        const DeviceMatrix v(backend, random_matrix(768, 64, 3));
        const DeviceMatrix o(backend, HostMatrix(768, 128));
        const DeviceVector<float> lse(backend, std::vector<float>(768 * 4));
        const Attention op{q.view(),   k.view(), v.view(), o.view(),
                           lse.data(), 32,       0.2F,     samples.rows()};
        backend.attention(op);
        const DeviceMatrix d_o(backend, random_matrix(768, 128, 4));
        const DeviceMatrix dq(backend, HostMatrix(768, 128));
        const DeviceMatrix dk(backend, HostMatrix(768, 64));
        const DeviceMatrix dv(backend, HostMatrix(768, 64));
        backend.attention_backward({op, d_o.view(), dq.view(), dk.view(), dv.view()});
        return Outputs{o.download().values, widened(lse), dq.download().values,
                       dk.download().values, dv.download().values};
    });
}

TEST(ThreadIndependence, Lora) {
    expect_same_for_any_threads([](Backend& backend) {
        Outputs outputs;
        for (const std::uint32_t dropout : {0U, 10000U}) {
            const LoraLinear linear(backend, 700, 600, {16, 8}, dropout, 1);
            const PackedSamples samples(backend, {300, 200});
            const std::vector<LoraSegment> segments{{1, 0, 190, 0}, {0, 190, 500, 0}};
            const LoraRows rows{segments, samples.rows()};
            const DeviceMatrix x(backend, random_matrix(500, 700, 1));
            const DeviceMatrix y(backend, random_matrix(500, 600, 2));
            for (auto& made : lora_outputs(backend, linear, rows, x, y)) {
                outputs.push_back(std::move(made));
            }
        }
        return outputs;
    });
}

TEST(ThreadIndependence, LossNormsAndOptimizer) {
    expect_same_for_any_threads([](Backend& backend) {
        const DeviceMatrix logits(backend, random_matrix(50, 3001, 1));
        const DeviceVector<std::int32_t> targets(backend, std::vector<std::int32_t>(50, 7));
        const DeviceVector<std::int32_t> bins(backend, std::vector<std::int32_t>(50, 0));
        const DeviceVector<float> scales(backend, std::vector<float>(50, 0.3F));
        const DeviceVector<double> losses(backend, {0.0});
        const DeviceVector<double> wrong(backend, {0.0});
        backend.cross_entropy({logits.view(), targets.data(), scales.data(), bins.data(),
                               losses.data(), wrong.data(), true});
        const DeviceVector<double> sum(backend, {0.0});
        backend.sum_squares({logits.view().f32(), logits.view().numel(), sum.data()});
        const DeviceMatrix x(backend, random_matrix(300, 700, 2));
        const DeviceMatrix weight(backend, random_matrix(1, 700, 3));
        backend.rms_norm({x.view(), weight.data(), 1e-6F, 1, x.view()});
        return Outputs{logits.download().values, losses.download(), wrong.download(),
                       sum.download(), x.download().values};
    });
}

}  // namespace
}  // namespace loratrain
