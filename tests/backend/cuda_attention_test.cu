#include <cmath>
#include <cstring>
#include <iostream>
#include <limits>
#include <memory>

#include "backend/cuda/attention.h"
#include "backend/cuda/cublaslt_library.h"
#include "backend/gpu_info.h"
#include "base/error.h"
#include "reference/attention.h"
#include "support/cuda_device.h"
#include "support/device_data.h"
#include "support/quick_lengths.h"

namespace loratrain {
namespace {

using reference::AttentionInput;
using reference::HostMatrix;

struct Shape {
    std::int64_t heads, kv_heads, head_dim;
    std::vector<std::int32_t> lengths;
    std::int64_t padding;  ///< columns between the rows of every matrix
    double query_size;     ///< larger scores make sharper probabilities
    std::int64_t sliding_window = 0;
    float soft_cap = 0.0F;
    double sinks = 0.0;  ///< spread_sinks()
};

std::vector<std::int32_t> many_lengths() {
    std::vector<std::int32_t> lengths;
    for (std::int32_t i = 0; i < 150; ++i) lengths.push_back(i * 37 % 23);
    return lengths;
}

const std::vector<std::int32_t> ragged{1, 2, 63, 64, 65, 127, 300};

std::vector<Shape> aligned_shapes() {
    return {{4, 1, 8, ragged, 8, 1.0},          {8, 1, 16, ragged, 0, 2.0},
            {3, 1, 96, {129, 191, 1}, 8, 1.0},  {4, 2, 128, {128, 256, 192}, 0, 1.0},
            {4, 4, 64, ragged, 64, 1.0},        {2, 2, 80, ragged, 0, 4.0},
            {8, 2, 128, ragged, 64, 4.0},       {8, 1, 128, {130, 5, 1}, 0, 1.0},
            {4, 1, 64, many_lengths(), 0, 1.0}, {4, 1, 128, many_lengths(), 8, 1.0},
            {6, 2, 64, {600, 70}, 0, 1.0},      {8, 1, 64, {300, 65}, 8, 2.0}};
}

Shape long_shape() {
    return {2, 1, 128, {2048, 17}, 0, 4.0};
}

/// Heads of more than 128 columns.
std::vector<Shape> wide_shapes() {
    return {{2, 1, 136, ragged, 8, 2.0},          {4, 1, 192, ragged, 64, 4.0},
            {3, 3, 200, ragged, 0, 1.0},          {6, 2, 248, {129, 191, 1}, 8, 1.0},
            {1, 1, 256, {1, 3}, 0, 1.0},          {8, 2, 256, ragged, 8, 4.0},
            {4, 2, 256, {128, 256, 192}, 0, 1.0}, {4, 1, 256, many_lengths(), 8, 1.0},
            {5, 1, 256, {600, 70}, 0, 2.0},       {2, 1, 256, {2048, 17}, 0, 4.0}};
}

/// Shapes without tensor cores: rows that start anywhere, odd heads.
std::vector<Shape> odd_shapes() {
    return {{2, 1, 7, {33, 1}, 0, 1.0},
            {4, 2, 64, {130, 65}, 3, 1.0},
            {2, 1, 133, {70, 20}, 0, 2.0},
            {2, 1, 256, {100}, 3, 1.0}};
}

/// Windows of two keys, within a tile, across tiles, and beyond most samples.
std::vector<Shape> window_shapes() {
    return {{4, 1, 8, ragged, 8, 1.0, 2},      {8, 2, 64, ragged, 0, 2.0, 40},
            {4, 4, 64, {500, 70}, 0, 1.0, 64}, {8, 2, 128, {700, 3}, 64, 4.0, 129},
            {2, 2, 80, ragged, 0, 4.0, 250},   {2, 1, 128, {2048, 17}, 0, 4.0, 512}};
}

std::vector<Shape> wide_window_shapes() {
    return {{4, 2, 136, {300, 5}, 0, 1.0, 40},  {2, 2, 192, ragged, 0, 4.0, 250},
            {4, 2, 256, ragged, 0, 2.0, 2},     {4, 1, 256, {500, 70}, 0, 1.0, 64},
            {8, 2, 256, {700, 3}, 8, 4.0, 129}, {2, 1, 256, {2048, 17}, 0, 4.0, 512}};
}

/// Caps that some scores come near, alone and with a window.
std::vector<Shape> capped_shapes() {
    return {{8, 2, 128, ragged, 8, 4.0, 0, 5.0F},
            {4, 2, 136, ragged, 0, 2.0, 40, 50.0F},
            {2, 1, 192, ragged, 0, 4.0, 0, 3.0F},
            {4, 2, 256, ragged, 8, 4.0, 0, 5.0F},
            {4, 2, 256, {700, 3}, 0, 4.0, 100, 8.0F}};
}

/// Sinks among the scores, far below and far above; alone, with a window and with a cap.
std::vector<Shape> sink_shapes() {
    return {{8, 1, 64, ragged, 0, 2.0, 0, 0.0F, 4.0},
            {16, 2, 64, {500, 70, 1}, 8, 2.0, 128, 0.0F, 4.0},
            {4, 2, 64, {700, 3}, 0, 4.0, 128, 0.0F, 30.0},
            {2, 1, 16, ragged, 0, 1.0, 0, 0.0F, 3.0},
            {4, 1, 128, many_lengths(), 8, 1.0, 0, 0.0F, 4.0},
            {2, 1, 80, ragged, 0, 4.0, 40, 5.0F, 5.0},
            {4, 2, 64, {130, 65}, 3, 1.0, 5, 0.0F, 2.0}};
}

std::vector<Shape> wide_sink_shapes() {
    return {{4, 2, 136, {300, 5}, 0, 1.0, 40, 0.0F, 3.0},
            {2, 2, 192, ragged, 0, 4.0, 0, 0.0F, 4.0},
            {4, 1, 256, {500, 70}, 0, 1.0, 64, 0.0F, 30.0},
            {4, 2, 256, ragged, 8, 4.0, 0, 5.0F, 4.0}};
}

std::vector<Shape> odd_window_shapes() {
    return {{2, 1, 7, {133, 1}, 0, 1.0, 33}, {4, 2, 64, {130, 65}, 3, 1.0, 5}};
}

struct Case {
    std::string name;
    DType dtype;
    std::vector<Shape> shapes;
};

std::ostream& operator<<(std::ostream& out, const Case& at) {
    return out << at.name;
}

std::vector<Case> cases() {
    return {{"bf16", DType::bf16, aligned_shapes()},
            {"bf16_long", DType::bf16, {long_shape()}},
            {"bf16_wide", DType::bf16, wide_shapes()},
            {"bf16_odd", DType::bf16, odd_shapes()},
            {"bf16_window", DType::bf16, window_shapes()},
            {"bf16_wide_window", DType::bf16, wide_window_shapes()},
            {"bf16_capped", DType::bf16, capped_shapes()},
            {"bf16_odd_window", DType::bf16, odd_window_shapes()},
            {"bf16_sinks", DType::bf16, sink_shapes()},
            {"bf16_wide_sinks", DType::bf16, wide_sink_shapes()},
            {"fp32", DType::f32, aligned_shapes()},
            {"fp32_long", DType::f32, {long_shape()}},
            {"fp32_odd", DType::f32, odd_shapes()},
            {"fp32_window", DType::f32, window_shapes()},
            {"fp32_sinks", DType::f32, sink_shapes()}};
}

/// A strided matrix in GPU memory with NaN between its rows; as tests see it, fp64.
class GpuMatrix {
  public:
    GpuMatrix(const HostMatrix& values, std::int64_t padding, DType dtype)
        : view_{nullptr, dtype, values.rows, values.cols, values.cols + padding},
          bytes_(packed(values)) {
        view_.data = bytes_.data();
    }

    const TensorView& view() const { return view_; }
    std::vector<char> raw() const { return bytes_.download(); }
    std::vector<double> download() const {
        const std::vector<char> host = raw();
        std::vector<double> result;
        std::int64_t touched = 0;
        for (std::int64_t row = 0; row < view_.rows; ++row) {
            for (std::int64_t col = 0; col < view_.ld; ++col) {
                const double value = load(host, row * view_.ld + col);
                if (col < view_.cols) {
                    result.push_back(value);
                } else {
                    touched += std::isnan(value) ? 0 : 1;
                }
            }
        }
        EXPECT_EQ(touched, 0) << "padding was written";
        return result;
    }

  private:
    std::vector<char> packed(const HostMatrix& values) const {
        std::vector<char> host(static_cast<std::size_t>(view_.rows * view_.ld) *
                               view_.element_size());
        for (std::int64_t row = 0; row < view_.rows; ++row) {
            for (std::int64_t col = 0; col < view_.ld; ++col) {
                const double value =
                    col < view_.cols ? values(row, col) : std::numeric_limits<double>::quiet_NaN();
                const auto single = static_cast<float>(value);
                const BFloat16 half = to_bfloat16(single);
                std::memcpy(host.data() + (row * view_.ld + col) * size(),
                            view_.dtype == DType::f32 ? static_cast<const void*>(&single) : &half,
                            view_.element_size());
            }
        }
        return host;
    }
    double load(const std::vector<char>& host, std::int64_t i) const {
        float single = 0.0F;
        BFloat16 half{};
        std::memcpy(view_.dtype == DType::f32 ? static_cast<void*>(&single) : &half,
                    host.data() + i * size(), view_.element_size());
        return view_.dtype == DType::f32 ? single : to_float(half);
    }
    std::int64_t size() const { return static_cast<std::int64_t>(view_.element_size()); }

    TensorView view_;
    GpuArray<char> bytes_;
};

HostMatrix unwritten(const HostMatrix& like) {
    return {like.rows, like.cols, std::nan("")};
}

struct Gradients {
    Gradients(const AttentionInput& in, DType dtype)
        : dq(unwritten(in.q), 8, dtype),
          dk(unwritten(in.k), 0, dtype),
          dv(unwritten(in.k), 16, dtype) {}

    GpuMatrix dq;
    GpuMatrix dk;
    GpuMatrix dv;
};

/// One attention in GPU memory.
class Operands {
  public:
    Operands(const AttentionInput& in, const HostMatrix& d_o, std::int64_t padding, DType dtype)
        : in_(in),
          dtype_(dtype),
          q_(in.q, padding, dtype),
          k_(in.k, padding, dtype),
          v_(in.v, padding, dtype),
          o_(unwritten(in.q), padding, dtype),
          d_o_(d_o, padding, dtype),
          lse_(std::vector<float>(in.q.rows * in.q.cols / in.head_dim, std::nanf(""))),
          sinks_(in.sinks),
          offsets_(in.offsets) {}

    void forward(CudaAttention& attention) const { attention.forward(op()); }
    Gradients backward(CudaAttention& attention) const {
        Gradients result(in_, dtype_);
        attention.backward(
            {op(), d_o_.view(), result.dq.view(), result.dk.view(), result.dv.view()});
        return result;
    }
    std::vector<double> o() const { return o_.download(); }
    std::vector<double> lse() const {
        const std::vector<float> values = lse_.download();
        return {values.begin(), values.end()};
    }

  private:
    Attention op() const {
        Attention result;
        result.q = q_.view();
        result.k = k_.view();
        result.v = v_.view();
        result.o = o_.view();
        result.lse = lse_.data();
        result.head_dim = in_.head_dim;
        result.scale = static_cast<float>(in_.scale);
        result.rows.tokens = in_.q.rows;
        result.rows.samples = static_cast<std::int64_t>(in_.offsets.size()) - 1;
        result.rows.offsets = offsets_.data();
        result.rows.host_offsets = in_.offsets.data();
        result.sliding_window = in_.sliding_window;
        result.soft_cap = in_.soft_cap;
        if (!in_.sinks.empty()) result.sinks = sinks_.data();
        return result;
    }

    const AttentionInput& in_;
    DType dtype_;
    GpuMatrix q_;
    GpuMatrix k_;
    GpuMatrix v_;
    GpuMatrix o_;
    GpuMatrix d_o_;
    GpuArray<float> lse_;
    GpuArray<float> sinks_;
    GpuArray<std::int32_t> offsets_;
};

HostMatrix random(std::int64_t rows, std::int64_t cols, std::uint64_t seed, DType dtype) {
    return reference::random_matrix(rows, cols, seed, dtype);
}

AttentionInput input(const Shape& shape, DType dtype) {
    std::vector<std::int32_t> offsets{0};
    for (const std::int32_t length : quick_lengths(shape.lengths))
        offsets.push_back(offsets.back() + length);
    const std::int64_t tokens = offsets.back();
    AttentionInput in{random(tokens, shape.heads * shape.head_dim, 1, dtype),
                      random(tokens, shape.kv_heads * shape.head_dim, 2, dtype),
                      random(tokens, shape.kv_heads * shape.head_dim, 3, dtype),
                      shape.head_dim,
                      static_cast<float>(1.0 / std::sqrt(static_cast<double>(shape.head_dim))),
                      offsets,
                      shape.sliding_window,
                      shape.soft_cap,
                      reference::spread_sinks(shape.heads, shape.sinks)};
    for (double& value : in.q.values) {
        value = reference::rounded_to(dtype, value * shape.query_size);
    }
    return in;
}

/// Of a block of threads, within LORATRAIN_MAX_SHARED_KIB.
int shared_limit() {
    int offered = 0;
    require(cudaDeviceGetAttribute(&offered, cudaDevAttrMaxSharedMemoryPerBlockOptin, 0));
    return shared_memory_limit(static_cast<std::size_t>(offered));
}

std::unique_ptr<CudaAttention> make_attention(DType dtype) {
    return std::make_unique<CudaAttention>(nullptr, dtype, shared_limit());
}

/// That keeps gradients of scores, where the device can.
std::unique_ptr<CudaAttention> make_keeping_attention(DType dtype, std::size_t mib) {
    auto result = make_attention(dtype);
    ScratchSizes sizes;
    sizes.attention_scores = mib << 20U;
    result->reserve(sizes);
    return result;
}

/// Relative error of the whole (root of the sums of squares), and of the worst element relative to
/// itself plus the root mean square. The latter is large where bf16 probabilities of the first rows
/// of a long sample, far above the mean, cancel.
void expect_near(const std::vector<double>& values, const std::vector<double>& expected,
                 DType dtype, const std::string& what) {
    ASSERT_EQ(values.size(), expected.size());
    const double mean = root_mean_square(expected);
    double error = 0.0;
    double worst = 0.0;
    for (std::size_t i = 0; i < values.size(); ++i) {
        const double difference = std::fabs(values[i] - expected[i]);
        error += difference * difference;
        worst = std::max(worst, difference / (mean + std::fabs(expected[i])));
    }
    const double whole = std::sqrt(error / static_cast<double>(values.size())) / mean;
    std::cout << what << ": relative error " << whole << ", worst element " << worst << "\n";
    EXPECT_LE(whole, dtype == DType::f32 ? 2e-6 : 4e-3) << what;
    EXPECT_LE(worst, dtype == DType::f32 ? 1e-5 : 1e-1) << what;
}

class CudaAttentionTest : public testing::TestWithParam<Case> {
  protected:
    void SetUp() override {
        LORATRAIN_NEED_GPU();
        attention_ = make_attention(GetParam().dtype);
        for (const std::size_t mib : {64, 2}) {
            keeping_.push_back(make_keeping_attention(GetParam().dtype, mib));
        }
    }

    void check(const Shape& shape) const {
        const DType dtype = GetParam().dtype;
        const auto element = dtype == DType::f32 ? kernels::Element::f32 : kernels::Element::bf16;
        if (shape.head_dim > kernels::attention_most_head_dim(element, shared_limit())) return;
        const AttentionInput in = input(shape, dtype);
        const HostMatrix d_o = random(in.q.rows, in.q.cols, 4, dtype);
        const std::string of =
            cat(" of ", shape.heads, "/", shape.kv_heads, " heads of ", shape.head_dim, ", ",
                shape.lengths.size(), " samples, ", GetParam().name);
        const Operands operands(in, d_o, shape.padding, dtype);

        const auto expected = reference::attention(in);
        operands.forward(*attention_);
        expect_near(operands.o(), expected.o.values, dtype, "o" + of);
        expect_close(operands.lse(), expected.lse.values, Tolerance{2e-5}, "lse" + of);

        const auto gradients = reference::attention_backward(in, d_o);
        const Gradients first = operands.backward(*attention_);
        expect_near(first.dq.download(), gradients.dq.values, dtype, "dq" + of);
        expect_near(first.dk.download(), gradients.dk.values, dtype, "dk" + of);
        expect_near(first.dv.download(), gradients.dv.values, dtype, "dv" + of);

        const Gradients second = operands.backward(*attention_);
        EXPECT_EQ(first.dq.raw(), second.dq.raw()) << "not repeatable: dq" << of;
        EXPECT_EQ(first.dk.raw(), second.dk.raw()) << "not repeatable: dk" << of;
        EXPECT_EQ(first.dv.raw(), second.dv.raw()) << "not repeatable: dv" << of;

        for (const auto& keeping : keeping_) {
            const Gradients kept = operands.backward(*keeping);
            EXPECT_EQ(first.dq.raw(), kept.dq.raw()) << "not as without kept scores: dq" << of;
            EXPECT_EQ(first.dk.raw(), kept.dk.raw()) << "not as without kept scores: dk" << of;
            EXPECT_EQ(first.dv.raw(), kept.dv.raw()) << "not as without kept scores: dv" << of;
        }
    }

    std::unique_ptr<CudaAttention> attention_;
    /// Gradients of scores, where the device can; of some heads at a time, or all.
    std::vector<std::unique_ptr<CudaAttention>> keeping_;
};

TEST_P(CudaAttentionTest, AgreesWithLoopsAndRepeatsToTheBit) {
    for (const Shape& shape : GetParam().shapes) check(shape);
}

INSTANTIATE_TEST_SUITE_P(Implementations, CudaAttentionTest, testing::ValuesIn(cases()),
                         [](const auto& at) { return at.param.name; });

TEST(CudaAttentionPartsTest, VeryLongSamplesAreAsInFp32) {
    LORATRAIN_NEED_GPU();
    const AttentionInput in = input({2, 2, 64, {28000, 100}, 0, 8.0}, DType::bf16);
    const HostMatrix d_o = random(in.q.rows, in.q.cols, 4, DType::bf16);
    const Operands exact(in, d_o, 0, DType::f32);
    const Operands operands(in, d_o, 0, DType::bf16);
    const auto plain = make_attention(DType::f32);
    const auto attention = make_attention(DType::bf16);
    exact.forward(*plain);
    operands.forward(*attention);
    expect_near(operands.o(), exact.o(), DType::bf16, "o");
    expect_close(operands.lse(), exact.lse(), Tolerance{2e-5}, "lse");
}

/// Numbers to hold against attention_row_bytes and attention_tile_bytes of
/// plan/memory/engine_memory.h.
TEST(CudaAttentionPartsTest, CountsItsDeviceMemory) {
    LORATRAIN_NEED_GPU();
    const AttentionInput in = input({8, 2, 128, {2048, 700, 512, 600}, 0, 8.0}, DType::bf16);
    const HostMatrix d_o = random(in.q.rows, in.q.cols, 4, DType::bf16);
    const Operands operands(in, d_o, 0, DType::bf16);
    MemoryUse use;
    {
        CudaAttention attention(nullptr, DType::bf16, shared_limit(), &use);
        operands.forward(attention);
        const std::size_t forward = use.current;
        operands.backward(attention);
        std::cout << "8/2 heads of 128, samples of 2048, 700, 512, 600: forward " << forward
                  << " bytes, with backward " << use.current << "\n";
        EXPECT_GT(forward, 0U);
        EXPECT_GT(use.current, forward);
    }
    EXPECT_EQ(use.current, 0U);
    EXPECT_GT(use.peak, 0U);
}

/// Whatever sizes used it before, and with whatever numbers.
TEST(CudaAttentionPartsTest, NothingComesOutOfItsWorkspace) {
    LORATRAIN_NEED_GPU();
    AttentionInput before = input({8, 2, 128, {2048, 700, 512, 600}, 0, 8.0}, DType::bf16);
    for (HostMatrix* x : {&before.q, &before.k, &before.v}) {
        std::fill(x->values.begin(), x->values.end(), std::nan(""));
    }
    const Operands spoilt(before, before.q, 0, DType::bf16);
    constexpr std::size_t mib = 64;
    const auto attention = make_keeping_attention(DType::bf16, mib);
    for (const std::vector<int>& lengths :
         {std::vector{1500, 900, 30}, std::vector{2048, 700, 40}}) {
        const AttentionInput in = input({8, 2, 128, lengths, 0, 8.0}, DType::bf16);
        const Operands operands(in, random(in.q.rows, in.q.cols, 5, DType::bf16), 0, DType::bf16);
        const auto fresh = make_keeping_attention(DType::bf16, mib);
        operands.forward(*fresh);
        const std::vector<double> o = operands.o();
        const std::vector<double> lse = operands.lse();
        const Gradients gradients = operands.backward(*fresh);
        spoilt.forward(*attention);
        spoilt.backward(*attention);
        operands.forward(*attention);
        EXPECT_EQ(operands.o(), o);
        EXPECT_EQ(operands.lse(), lse);
        EXPECT_TRUE(std::all_of(o.begin(), o.end(), [](double x) { return std::isfinite(x); }));
        const Gradients after = operands.backward(*attention);
        EXPECT_EQ(after.dq.download(), gradients.dq.download());
        EXPECT_EQ(after.dk.download(), gradients.dk.download());
        EXPECT_EQ(after.dv.download(), gradients.dv.download());
    }
}

/// A sample whose numbers are none, beside one in the same tiles of rows.
TEST(CudaAttentionPartsTest, SamplesDoNotTouchEachOther) {
    LORATRAIN_NEED_GPU();
    for (const std::int64_t head_dim : {64, 96, 128, 192, 256}) {
        const AttentionInput in = input({4, 2, head_dim, {300, 70, 129}, 0, 1.0}, DType::bf16);
        const HostMatrix d_o = random(in.q.rows, in.q.cols, 5, DType::bf16);
        AttentionInput bad = in;
        HostMatrix bad_d_o = d_o;
        const std::int64_t first = in.offsets[1];
        const std::int64_t end = in.offsets[2];
        for (HostMatrix* x : {&bad.q, &bad.k, &bad.v, &bad_d_o}) {
            std::fill(x->values.begin() + first * x->cols, x->values.begin() + end * x->cols,
                      std::nan(""));
        }
        const auto attention = make_attention(DType::bf16);
        const Operands good_rows(in, d_o, 0, DType::bf16);
        good_rows.forward(*attention);
        const Gradients expected = good_rows.backward(*attention);
        const Operands bad_rows(bad, bad_d_o, 0, DType::bf16);
        bad_rows.forward(*attention);
        const Gradients got = bad_rows.backward(*attention);
        const auto outside = [&](const GpuMatrix& x) {
            std::vector<double> values = x.download();
            const std::int64_t cols = x.view().cols;
            values.erase(values.begin() + first * cols, values.begin() + end * cols);
            return values;
        };
        EXPECT_EQ(outside(got.dq), outside(expected.dq)) << head_dim;
        EXPECT_EQ(outside(got.dk), outside(expected.dk)) << head_dim;
        EXPECT_EQ(outside(got.dv), outside(expected.dv)) << head_dim;
    }
}

TEST(CudaAttentionPartsTest, UsesNoTableOfMemoryThatWasReplaced) {
    LORATRAIN_NEED_GPU();
    const AttentionInput in = input({4, 2, 64, ragged, 0, 1.0}, DType::bf16);
    const Operands operands(in, random(in.q.rows, in.q.cols, 4, DType::bf16), 0, DType::bf16);
    ScratchSizes larger;
    larger.attention_tiles = std::size_t{16} << 20U;
    const auto attention = make_attention(DType::bf16);
    operands.forward(*attention);
    const std::vector<double> o = operands.o();
    const Gradients gradients = operands.backward(*attention);
    attention->reserve(larger);
    operands.forward(*attention);
    EXPECT_EQ(operands.o(), o);
    EXPECT_EQ(operands.backward(*attention).dk.raw(), gradients.dk.raw());
}

TEST(AttentionTilesTest, CoverTheSamplesMostWorkFirst) {
    const std::vector<std::int32_t> offsets{0, 130, 130, 131};
    PackedRows rows;
    rows.tokens = 131;
    rows.samples = 3;
    rows.host_offsets = offsets.data();
    const auto queries = attention_tiles(rows, 64, TileOrder::queries);
    ASSERT_EQ(queries.size(), 4U);
    EXPECT_EQ(queries[0].begin, 128);
    EXPECT_EQ(queries[3].first, 130);
    const auto keys = attention_tiles(rows, 64, TileOrder::keys);
    ASSERT_EQ(keys.size(), 4U);
    EXPECT_EQ(keys[0].begin, 0);
    EXPECT_EQ(keys[0].length, 130);
    EXPECT_EQ(keys[3].length, 1);
    EXPECT_EQ(keys[0].pairs, 0);
    EXPECT_EQ(keys[3].pairs, 6);
}

/// Needs no GPU: each function of the library is found.
TEST(CublasLtLibraryTest, IsTheOneThatTheBuildKnows) {
    EXPECT_EQ(cublas_lt().GetVersion() / 10000, CUBLAS_VER_MAJOR);
    EXPECT_EQ(cublas_lt_text(130100), "cuBLASLt 13.1.0");
}

}  // namespace
}  // namespace loratrain
