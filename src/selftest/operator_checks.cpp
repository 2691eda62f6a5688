#include "selftest/operator_checks.h"

#include <cmath>
#include <cstring>

#include "selftest/host_matrix.h"

namespace loratrain {

namespace {

double rounded(DType type, double value) {
    const auto single = static_cast<float>(value);
    return type == DType::f32 ? single : to_float(to_bfloat16(single));
}

HostMatrix random_matrix_of(const Backend& backend, std::int64_t rows, std::int64_t cols,
                            std::uint64_t key, double deviation = 1.0) {
    HostMatrix matrix = random_host_matrix(rows, cols, key, deviation);
    for (double& value : matrix.values) value = rounded(backend.compute_dtype(), value);
    return matrix;
}

/// A matrix in the backend's memory, in its compute type.
class OnBackend {
  public:
    OnBackend(Backend& backend, const HostMatrix& matrix) : backend_(backend), shape_(matrix) {
        const DType type = backend.compute_dtype();
        std::vector<char> host(matrix.values.size() * size_of(type));
        for (std::size_t i = 0; i < matrix.values.size(); ++i) {
            const auto single = static_cast<float>(matrix.values[i]);
            const BFloat16 half = to_bfloat16(single);
            const void* value = &half;
            if (type == DType::f32) value = &single;
            std::memcpy(host.data() + i * size_of(type), value, size_of(type));
        }
        buffer_ = backend.allocate(host.size(), "self test");
        backend.upload(buffer_.data(), host.data(), host.size());
    }

    TensorView view() const {
        return matrix(buffer_.data(), backend_.compute_dtype(), shape_.rows, shape_.cols);
    }

    std::vector<double> values() const {
        const DType type = backend_.compute_dtype();
        std::vector<char> host(shape_.values.size() * size_of(type));
        backend_.synchronize();
        backend_.download(host.data(), buffer_.data(), host.size());
        std::vector<double> result;
        for (std::size_t i = 0; i < shape_.values.size(); ++i) {
            float single = 0.0F;
            BFloat16 half{};
            void* value = &half;
            if (type == DType::f32) value = &single;
            std::memcpy(value, host.data() + i * size_of(type), size_of(type));
            result.push_back(type == DType::f32 ? single : to_float(half));
        }
        return result;
    }

  private:
    Backend& backend_;
    HostMatrix shape_;
    Buffer buffer_;
};

/// An array in the backend's memory.
template <class T>
class ArrayOnBackend {
  public:
    ArrayOnBackend(Backend& backend, const std::vector<T>& values)
        : backend_(backend),
          count_(values.size()),
          buffer_(backend.allocate(values.size() * sizeof(T), "self test")) {
        backend.upload(buffer_.data(), values.data(), values.size() * sizeof(T));
    }
    T* data() const { return buffer_.template as<T>(); }
    std::vector<double> values() const {
        std::vector<T> host(count_);
        backend_.synchronize();
        backend_.download(host.data(), buffer_.data(), count_ * sizeof(T));
        return {host.begin(), host.end()};
    }

  private:
    Backend& backend_;
    std::size_t count_;
    Buffer buffer_;
};

double gemm_error(Backend& backend) {
    const HostMatrix a = random_matrix_of(backend, 96, 160, 1);
    const HostMatrix b = random_matrix_of(backend, 128, 160, 2);
    const OnBackend on_a(backend, a);
    const OnBackend on_b(backend, b);
    const OnBackend c(backend, HostMatrix(96, 128));
    Gemm op;
    op.a = on_a.view();
    op.b = on_b.view();
    op.c = c.view();
    op.transpose_b = true;
    backend.gemm(op);
    return relative_error(c.values(), times_transposed(a, b).values);
}

double rms_norm_error(Backend& backend) {
    const HostMatrix x = random_matrix_of(backend, 24, 128, 3);
    const HostMatrix weight = random_matrix_of(backend, 1, 128, 4);
    HostMatrix want = x;
    for (std::int64_t row = 0; row < x.rows; ++row) {
        double squares = 0.0;
        for (std::int64_t j = 0; j < x.cols; ++j) squares += x(row, j) * x(row, j);
        const double inverse = 1.0 / std::sqrt(squares / static_cast<double>(x.cols) + 1e-5);
        for (std::int64_t j = 0; j < x.cols; ++j) want(row, j) *= inverse * weight(0, j);
    }
    const OnBackend on_x(backend, x);
    const OnBackend on_weight(backend, weight);
    const OnBackend y(backend, x);
    RmsNorm op;
    op.x = on_x.view();
    op.weight = on_weight.view().data;
    op.eps = 1e-5F;
    op.y = y.view();
    backend.rms_norm(op);
    return relative_error(y.values(), want.values);
}

double swiglu_error(Backend& backend) {
    const HostMatrix gate = random_matrix_of(backend, 24, 128, 5, 3.0);
    const HostMatrix up = random_matrix_of(backend, 24, 128, 6);
    HostMatrix want = up;
    for (std::size_t i = 0; i < want.values.size(); ++i) {
        want.values[i] *= gate.values[i] / (1.0 + std::exp(-gate.values[i]));
    }
    const OnBackend on_gate(backend, gate);
    const OnBackend on_up(backend, up);
    const OnBackend h(backend, up);
    backend.swiglu({on_gate.view(), on_up.view(), h.view()});
    return relative_error(h.values(), want.values);
}

/// Two samples, two query heads of one key-value head.
struct AttentionProblem {
    static constexpr std::int64_t dim = 64;
    std::vector<std::int32_t> offsets{0, 9, 33};
    HostMatrix q, k, v;

    HostMatrix expected() const {
        HostMatrix o(q.rows, q.cols);
        for (std::size_t sample = 0; sample + 1 < offsets.size(); ++sample) {
            for (std::int64_t row = offsets[sample]; row < offsets[sample + 1]; ++row) {
                for (std::int64_t head = 0; head < q.cols / dim; ++head) {
                    attend(row, offsets[sample], head * dim, o);
                }
            }
        }
        return o;
    }

  private:
    void attend(std::int64_t row, std::int64_t first_key, std::int64_t col, HostMatrix& o) const {
        std::vector<double> weights;
        double sum = 0.0;
        for (std::int64_t key = first_key; key <= row; ++key) {
            double score = 0.0;
            for (std::int64_t j = 0; j < dim; ++j) score += q(row, col + j) * k(key, j);
            weights.push_back(std::exp(score / std::sqrt(static_cast<double>(dim))));
            sum += weights.back();
        }
        for (std::int64_t key = first_key; key <= row; ++key) {
            const double share = weights[static_cast<std::size_t>(key - first_key)] / sum;
            for (std::int64_t j = 0; j < dim; ++j) o(row, col + j) += share * v(key, j);
        }
    }
};

double attention_error(Backend& backend) {
    constexpr std::int64_t dim = AttentionProblem::dim;
    AttentionProblem problem;
    const std::int64_t rows = problem.offsets.back();
    problem.q = random_matrix_of(backend, rows, 2 * dim, 7);
    problem.k = random_matrix_of(backend, rows, dim, 8);
    problem.v = random_matrix_of(backend, rows, dim, 9);
    const OnBackend q(backend, problem.q);
    const OnBackend k(backend, problem.k);
    const OnBackend v(backend, problem.v);
    const OnBackend o(backend, HostMatrix(rows, 2 * dim));
    std::vector<std::int32_t> positions;
    std::vector<std::int32_t> samples;
    for (std::size_t sample = 0; sample + 1 < problem.offsets.size(); ++sample) {
        for (std::int32_t i = problem.offsets[sample]; i < problem.offsets[sample + 1]; ++i) {
            positions.push_back(i - problem.offsets[sample]);
            samples.push_back(static_cast<std::int32_t>(sample));
        }
    }
    const ArrayOnBackend<std::int32_t> offsets(backend, problem.offsets);
    const ArrayOnBackend<std::int32_t> on_positions(backend, positions);
    const ArrayOnBackend<std::int32_t> on_samples(backend, samples);
    const ArrayOnBackend<float> lse(backend,
                                    std::vector<float>(static_cast<std::size_t>(2 * rows), 0.0F));
    Attention op;
    op.q = q.view();
    op.k = k.view();
    op.v = v.view();
    op.o = o.view();
    op.lse = lse.data();
    op.head_dim = dim;
    op.scale = 1.0F / std::sqrt(static_cast<float>(dim));
    op.rows = {rows,
               static_cast<std::int64_t>(problem.offsets.size()) - 1,
               offsets.data(),
               problem.offsets.data(),
               on_positions.data(),
               on_samples.data()};
    backend.attention(op);
    return relative_error(o.values(), problem.expected().values);
}

/// Of the gradient that takes the logits' place.
double cross_entropy_error(Backend& backend) {
    const HostMatrix logits = random_matrix_of(backend, 6, 200, 10, 2.0);
    const std::vector<std::int32_t> targets{0, 7, 199, 42, 3, 100};
    const std::vector<float> scales{1.0F, 0.5F, 2.0F, 1.0F, 0.25F, 1.0F};
    HostMatrix want = logits;
    for (std::int64_t row = 0; row < want.rows; ++row) {
        const auto r = static_cast<std::size_t>(row);
        double sum = 0.0;
        for (std::int64_t j = 0; j < want.cols; ++j) sum += std::exp(logits(row, j));
        for (std::int64_t j = 0; j < want.cols; ++j) {
            const double one = j == targets[r] ? 1.0 : 0.0;
            want(row, j) = scales[r] * (std::exp(logits(row, j)) / sum - one);
        }
    }
    const OnBackend on_logits(backend, logits);
    const ArrayOnBackend<std::int32_t> on_targets(backend, targets);
    const ArrayOnBackend<float> on_scales(backend, scales);
    const ArrayOnBackend<std::int32_t> bins(backend, std::vector<std::int32_t>(6, 0));
    const ArrayOnBackend<double> sums(backend, {0.0, 0.0});
    CrossEntropy op;
    op.logits = on_logits.view();
    op.targets = on_targets.data();
    op.scales = on_scales.data();
    op.bins = bins.data();
    op.loss_sums = sums.data();
    op.wrong_counts = sums.data() + 1;
    backend.cross_entropy(op);
    return relative_error(on_logits.values(), want.values);
}

double adamw_error(Backend& backend) {
    const std::vector<double> before = random_host_matrix(1, 500, 11, 1.0).values;
    const std::vector<double> gradient = random_host_matrix(1, 500, 12, 1.0).values;
    AdamW op;
    op.learning_rate = 0.1;
    op.weight_decay = 0.1;
    op.max_grad_norm = 1.0;
    double squares = 0.0;
    for (const double g : gradient) squares += g * g;
    std::vector<double> want = before;
    for (std::size_t i = 0; i < want.size(); ++i) {
        const double g = gradient[i] / (std::sqrt(squares) + 1e-6);
        want[i] -=
            op.learning_rate * (op.weight_decay * before[i] + g / (std::fabs(g) + op.epsilon));
    }
    const auto floats = [](const std::vector<double>& values) {
        return std::vector<float>(values.begin(), values.end());
    };
    const ArrayOnBackend<float> parameters(backend, floats(before));
    const ArrayOnBackend<float> gradients(backend, floats(gradient));
    const ArrayOnBackend<float> first(backend, std::vector<float>(500, 0.0F));
    const ArrayOnBackend<float> second(backend, std::vector<float>(500, 0.0F));
    const ArrayOnBackend<double> sum(backend, {squares});
    const ArrayOnBackend<std::int64_t> steps(backend, {0, 0});
    op.parameters = parameters.data();
    op.gradients = gradients.data();
    op.first_moments = first.data();
    op.second_moments = second.data();
    op.count = 500;
    op.grad_sumsq = sum.data();
    op.applied_steps = steps.data();
    op.skipped_steps = steps.data() + 1;
    backend.adamw(op);
    return relative_error(parameters.values(), want);
}

}  // namespace

std::vector<OperatorCheck> check_operators(Backend& backend) {
    // The unit roundoff of the type, times what a sum of a few hundred terms may add.
    const double limit = backend.compute_dtype() == DType::f32 ? 2e-5 : 5e-2;
    constexpr double fp32_limit = 2e-5;  // masters are fp32 on every backend
    return {{"matrix product", gemm_error(backend), limit},
            {"RMSNorm", rms_norm_error(backend), limit},
            {"SwiGLU", swiglu_error(backend), limit},
            {"attention", attention_error(backend), limit},
            {"cross-entropy", cross_entropy_error(backend), limit},
            {"AdamW", adamw_error(backend), fp32_limit}};
}

}  // namespace loratrain
