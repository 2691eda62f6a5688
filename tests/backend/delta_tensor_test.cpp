#include <array>
#include <cmath>

#include "reference/delta_net.h"
#include "support/backend_case.h"
#include "support/device_data.h"
#include "support/packed_samples.h"
#include "support/quick_lengths.h"

namespace loratrain {
namespace {

using reference::DeltaGradients;
using reference::DeltaInput;
using reference::HostMatrix;

/// Limits of what tensor cores make of the delta rule in bf16 with heads of 128 columns: the length
/// of the difference over that of the right matrix, which is far below what single numbers show.
constexpr double most_error = 1.2e-2;

struct TensorShape {
    std::int64_t key_heads, value_heads;
    std::vector<std::int32_t> lengths;
    double decay;  ///< the most of -g
    int shared_kib = 227;
};

const std::vector<TensorShape> tensor_shapes{
    {1, 1, {1}, 0.5},
    {1, 1, {63}, 0.5},
    {1, 3, {64}, 0.05},
    {1, 2, {65}, 0.05},
    {1, 2, {128, 129}, 0.01},
    {2, 4, {1, 3, 4, 5, 63, 64, 65, 1, 400}, 0.1},
    {2, 4, {200, 7, 192}, 8.0},
    {1, 2, {70, 300, 2}, 0.02, 163},
    {1, 2, {70, 300, 2}, 0.02, 99},
};

double relative_error(const HostMatrix& got, const HostMatrix& expected) {
    double difference = 0.0;
    double size = 0.0;
    for (std::size_t i = 0; i < expected.values.size(); ++i) {
        difference += std::pow(got.values[i] - expected.values[i], 2);
        size += std::pow(expected.values[i], 2);
    }
    return std::sqrt(difference / (size + 1e-30));
}

DeltaInput tensor_input(const TensorShape& shape, const std::vector<std::int32_t>& offsets) {
    constexpr std::int64_t dim = 128;
    return reference::random_delta_input({shape.key_heads, shape.value_heads, dim, dim}, offsets,
                                         DType::bf16, shape.decay);
}

/// What a backend makes of an input: o, dq, dk, dv, d_g, d_beta.
std::array<HostMatrix, 6> run_rule(Backend& backend, const DeltaInput& in,
                                   const PackedSamples& samples, const HostMatrix& d_o) {
    const auto empty = [&](const HostMatrix& like, DType dtype) {
        return DeviceMatrix(backend, HostMatrix(like.rows, like.cols, 1.0 / 0.0),
                            dtype == DType::f32 ? 0 : 8, dtype);
    };
    const DeviceMatrix q(backend, in.q, 8);
    const DeviceMatrix k(backend, in.k, 16);
    const DeviceMatrix v(backend, in.v, 8);
    const DeviceMatrix g(backend, in.g, 0, DType::f32);
    const DeviceMatrix beta(backend, in.beta, 0, DType::f32);
    const DeviceMatrix device_d_o(backend, d_o, 24);
    const DeviceMatrix o = empty(in.v, DType::bf16);
    const DeviceMatrix dq = empty(in.q, DType::bf16);
    const DeviceMatrix dk = empty(in.k, DType::bf16);
    const DeviceMatrix dv = empty(in.v, DType::bf16);
    const DeviceMatrix d_g = empty(in.g, DType::f32);
    const DeviceMatrix d_beta = empty(in.g, DType::f32);
    const DeviceVector<float> states(
        backend, std::vector<float>(
                     static_cast<std::size_t>(delta_states(in.v.rows) * in.value_heads * 128 * 128),
                     std::numeric_limits<float>::quiet_NaN()));
    const DeltaRule rule{q.view(), k.view(),     v.view(),       g.view(),      beta.view(),
                         o.view(), in.key_heads, in.value_heads, states.data(), samples.rows()};
    backend.delta_rule(rule);
    backend.delta_rule_backward(
        {rule, device_d_o.view(), dq.view(), dk.view(), dv.view(), d_g.view(), d_beta.view()});
    return {o.download(),  dq.download(),  dk.download(),
            dv.download(), d_g.download(), d_beta.download()};
}

TEST(DeltaTensorTest, AgreesWithLoopsByLength) {
    if (!has_cuda()) GTEST_SKIP() << missing_cuda();
    for (const TensorShape& shape : tensor_shapes) {
        const SharedLimit limit(shape.shared_kib);
        const auto backend = make_backend("cuda", {1, 0, DType::bf16});
        const PackedSamples samples(*backend, quick_lengths(shape.lengths));
        const DeltaInput in = tensor_input(shape, samples.offsets());
        HostMatrix d_o = reference::random_matrix(in.v.rows, in.v.cols, 6);
        for (double& value : d_o.values) value = reference::rounded_to(DType::bf16, value);
        const DeltaGradients d = reference::delta_rule_backward(in, d_o);
        const std::array<HostMatrix, 6> expected{
            reference::delta_rule(in), d.dq, d.dk, d.dv, d.d_g, d.d_beta};
        const auto got = run_rule(*backend, in, samples, d_o);
        const auto again = run_rule(*backend, in, samples, d_o);
        constexpr std::array names{"o", "dq", "dk", "dv", "d_g", "d_beta"};
        for (std::size_t i = 0; i < names.size(); ++i) {
            const double error = relative_error(got[i], expected[i]);
            EXPECT_LT(error, most_error)
                << names[i] << " of " << in.v.rows << " tokens, shared memory " << shape.shared_kib;
            EXPECT_EQ(got[i].values, again[i].values) << names[i];
        }
    }
}

}  // namespace
}  // namespace loratrain
