#include <algorithm>
#include <limits>

#include "reference/delta_net.h"
#include "support/backend_case.h"
#include "support/device_data.h"

namespace loratrain {
namespace {

using reference::DeltaInput;
using reference::HostMatrix;
using reference::Offsets;

/// Samples of several lengths, cut into calls: the first call has cuts[i] rows of sample i, the
/// others one row of each sample as long as all have one.
struct CutSamples {
    std::vector<std::int32_t> cuts;
    std::int32_t steps;

    std::int64_t count() const { return std::ssize(cuts); }
    /// Rows of the whole samples, one behind another.
    Offsets whole() const {
        Offsets offsets{0};
        for (const std::int32_t cut : cuts) offsets.push_back(offsets.back() + cut + steps);
        return offsets;
    }
    /// Per row of call `call` its row among the whole samples.
    std::vector<std::int64_t> rows(std::int32_t call) const {
        const Offsets offsets = whole();
        std::vector<std::int64_t> rows;
        for (std::size_t i = 0; i < cuts.size(); ++i) {
            const std::int64_t begin = call == 0 ? 0 : cuts[i] + call - 1;
            const std::int64_t end = cuts[i] + call;
            for (std::int64_t t = begin; t < end; ++t) rows.push_back(offsets[i] + t);
        }
        return rows;
    }
};

const std::vector<CutSamples> cut_samples{
    {{1, 2, 3, 4}, 5}, {{63, 1, 64, 65, 5}, 3}, {{17}, 20}, {{130, 2, 16, 15}, 1}};

/// The packed rows of a call in a backend's memory, with positions in the whole samples.
class CallRows {
  public:
    CallRows(Backend& backend, const CutSamples& samples, std::int32_t call)
        : rows_(samples.rows(call)),
          host_offsets_(offsets_of(samples, call)),
          offsets_(backend, host_offsets_),
          positions_(backend, positions_of(samples, call)) {}

    HostMatrix pick(const HostMatrix& whole) const {
        HostMatrix picked(std::ssize(rows_), whole.cols);
        for (std::int64_t i = 0; i < picked.rows; ++i) {
            for (std::int64_t j = 0; j < whole.cols; ++j) {
                picked(i, j) = whole(rows_[static_cast<std::size_t>(i)], j);
            }
        }
        return picked;
    }
    PackedRows packed() const {
        PackedRows rows;
        rows.tokens = std::ssize(rows_);
        rows.samples = std::ssize(host_offsets_) - 1;
        rows.offsets = offsets_.data();
        rows.host_offsets = host_offsets_.data();
        rows.positions = positions_.data();
        return rows;
    }

  private:
    static Offsets offsets_of(const CutSamples& samples, std::int32_t call) {
        Offsets offsets{0};
        for (const std::int32_t cut : samples.cuts) {
            offsets.push_back(offsets.back() + (call == 0 ? cut : 1));
        }
        return offsets;
    }
    static std::vector<std::int32_t> positions_of(const CutSamples& samples, std::int32_t call) {
        const Offsets whole = samples.whole();
        std::vector<std::int32_t> positions;
        for (const std::int64_t row : samples.rows(call)) {
            const auto sample = std::upper_bound(whole.begin(), whole.end(), row) - 1;
            positions.push_back(static_cast<std::int32_t>(row - *sample));
        }
        return positions;
    }

    std::vector<std::int64_t> rows_;
    Offsets host_offsets_;
    DeviceVector<std::int32_t> offsets_;
    DeviceVector<std::int32_t> positions_;
};

class CachedDeltaNetTest : public BackendTest {};

TEST_P(CachedDeltaNetTest, ConvolutionGoesOn) {
    for (const CutSamples& samples : cut_samples) {
        for (const auto& [width, cols] : {std::pair{4, 72}, {1, 8}, {8, 300}, {3, 1030}}) {
            const Offsets offsets = samples.whole();
            const HostMatrix x = random(offsets.back(), cols, 1);
            const HostMatrix w = random(cols, width, 2);
            const HostMatrix expected = reference::causal_conv(x, w, offsets);
            const DeviceMatrix device_w(backend(), w);
            const HostMatrix before(samples.count() * (width - 1), cols,
                                    std::numeric_limits<double>::quiet_NaN());
            const DeviceMatrix kept(backend(), before, 5);
            for (std::int32_t call = 0; call <= samples.steps; ++call) {
                const CallRows rows(backend(), samples, call);
                const DeviceMatrix part(backend(), rows.pick(x), 8);
                const DeviceMatrix y(backend(), HostMatrix(part.view().rows, cols, 1.0 / 0.0), 3);
                backend().cached_conv(
                    {{part.view(), device_w.data(), width, y.view(), rows.packed()}, kept.view()});
                expect_close(y, rows.pick(expected),
                             cat("convolution of ", width, ", call ", call));
            }
        }
    }
}

struct CachedShape {
    std::int64_t key_heads, value_heads, key_dim, value_dim;
};

const std::vector<CachedShape> cached_shapes{{1, 1, 8, 8},     {2, 4, 8, 12},  {1, 3, 24, 40},
                                             {2, 2, 128, 128}, {1, 2, 64, 96}, {1, 1, 256, 66},
                                             {1, 2, 40, 7}};

/// A rule's operands of a call.
struct CallOfRule {
    DeviceMatrix q;
    DeviceMatrix k;
    DeviceMatrix v;
    DeviceMatrix g;
    DeviceMatrix beta;
    DeviceMatrix o;

    CallOfRule(Backend& backend, const DeltaInput& in, const CallRows& rows)
        : q(backend, rows.pick(in.q), 8),
          k(backend, rows.pick(in.k), 3),
          v(backend, rows.pick(in.v), 8),
          g(backend, rows.pick(in.g), 0, DType::f32),
          beta(backend, rows.pick(in.beta), 0, DType::f32),
          o(backend, HostMatrix(v.view().rows, v.view().cols, 1.0 / 0.0), 5) {}

    DeltaRule op(const DeltaInput& in, const PackedRows& rows) const {
        return {q.view(), k.view(),     v.view(),       g.view(), beta.view(),
                o.view(), in.key_heads, in.value_heads, nullptr,  rows};
    }
};

TEST_P(CachedDeltaNetTest, RuleGoesOn) {
    for (const CutSamples& samples : cut_samples) {
        for (const CachedShape& shape : cached_shapes) {
            const Offsets offsets = samples.whole();
            const DeltaInput in = reference::random_delta_input(
                {shape.key_heads, shape.value_heads, shape.key_dim, shape.value_dim}, offsets,
                dtype(), 0.2);
            const HostMatrix expected = reference::delta_rule(in);
            const std::int64_t state = shape.value_heads * shape.key_dim * shape.value_dim;
            const DeviceVector<float> kept(
                backend(), std::vector<float>(static_cast<std::size_t>(samples.count() * state),
                                              std::numeric_limits<float>::quiet_NaN()));
            for (std::int32_t call = 0; call <= samples.steps; ++call) {
                const CallRows rows(backend(), samples, call);
                const CallOfRule of(backend(), in, rows);
                backend().cached_delta_rule({of.op(in, rows.packed()), kept.data()});
                expect_close(of.o, rows.pick(expected),
                             cat("rule of heads of ", shape.key_dim, ", call ", call));
            }
        }
    }
}

LORATRAIN_FOR_EACH_BACKEND(CachedDeltaNetTest);

}  // namespace
}  // namespace loratrain
