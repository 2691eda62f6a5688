#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <string>
#include <vector>

#include "backend/make_backend.h"
#include "base/rng.h"
#include "base/text.h"

// Times every operator at the shapes of a model of about 100M parameters: best of many runs.
// bench_ops [threads [tokens]]

namespace loratrain {
namespace {

constexpr std::int64_t hidden = 768;
constexpr std::int64_t inter = 2048;
constexpr std::int64_t vocabulary = 32000;
constexpr std::int64_t head_dim = 64;
constexpr std::int64_t heads = 12;
constexpr std::int64_t kv_heads = 12;
constexpr std::int64_t sample_tokens = 256;
constexpr std::int64_t adapters = 4;
constexpr std::int32_t rank = 16;
constexpr std::int64_t padding = 64;

double seconds_now() {
    return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch())
        .count();
}

class Bench {
  public:
    Bench(int threads, std::int64_t tokens)
        : backend_(make_backend("cpu", {threads, 0})), tokens_(tokens) {
        std::printf("%s, %ld tokens\n%-34s %10s %10s\n", backend_->description().c_str(),
                    static_cast<long>(tokens), "operator", "us", "rate");
        for (std::int64_t row = 0; row <= tokens; row += sample_tokens) {
            offsets_.push_back(static_cast<std::int32_t>(row));
        }
        for (std::int64_t row = 0; row < tokens; ++row) {
            positions_.push_back(static_cast<std::int32_t>(row % sample_tokens));
            sample_ids_.push_back(static_cast<std::int32_t>(row / sample_tokens));
        }
    }

    void run() {
        gemms();
        lora(0);
        lora(dropout_threshold(0.1));
        elementwise();
        attention();
        loss();
        optimizer();
    }

  private:
    /// work: FLOPs (unit "GFLOP/s") or bytes (unit "GB/s") of one call.
    void time(const std::string& name, double work, const char* unit,
              const std::function<void()>& call) const {
        double best = 1e30;
        const double end = seconds_now() + 0.4;
        for (int repetition = 0; repetition < 5 || seconds_now() < end; ++repetition) {
            const double start = seconds_now();
            call();
            best = std::min(best, seconds_now() - start);
        }
        std::printf("%-34s %10.1f %10.1f %s\n", name.c_str(), best * 1e6, work / best * 1e-9, unit);
    }
    void flops(const std::string& name, double work, const std::function<void()>& call) const {
        time(name, work, "GFLOP/s", call);
    }
    void bytes(const std::string& name, double work, const std::function<void()>& call) const {
        time(name, work, "GB/s", call);
    }

    float* floats(std::int64_t count) {
        buffers_.push_back(backend_->allocate(static_cast<std::size_t>(count) * 4, "bench"));
        auto* data = buffers_.back().as<float>();
        for (std::int64_t i = 0; i < count; ++i) {
            data[i] = static_cast<float>((i * 2654435761U) % 1000) * 1e-3F - 0.5F;
        }
        return data;
    }
    TensorView random(std::int64_t rows, std::int64_t cols, std::int64_t pad = 0) {
        return {floats(rows * (cols + pad)), DType::f32, rows, cols, cols + pad};
    }
    PackedRows rows() const {
        return {tokens_,           static_cast<std::int64_t>(offsets_.size()) - 1,
                offsets_.data(),   offsets_.data(),
                positions_.data(), sample_ids_.data()};
    }

    void gemm(std::int64_t m, std::int64_t n, std::int64_t k, bool transpose_b) {
        const TensorView a = random(m, k, padding);
        const TensorView b = transpose_b ? random(n, k, padding) : random(k, n, padding);
        const TensorView c = random(m, n, padding);
        flops(cat("gemm ", m, "x", n, "x", k, transpose_b ? " forward" : " backward"),
              2.0 * static_cast<double>(m * n * k), [&] {
                  backend_->gemm({a, b, c, false, transpose_b, 1.0F, 0.0F});
              });
    }

    void gemms() {
        for (const bool forward : {true, false}) {
            gemm(tokens_, hidden, hidden, forward);
            gemm(tokens_, inter, hidden, forward);
            gemm(tokens_, hidden, inter, forward);
        }
        gemm(512, vocabulary, hidden, true);
        gemm(512, hidden, vocabulary, false);
    }

    void lora(std::uint32_t dropout) {
        const std::string name = dropout == 0 ? "lora" : "lora, dropout,";
        const TensorView x = random(tokens_, hidden, padding);
        const TensorView y = random(tokens_, inter, padding);
        const TensorView s = random(tokens_, adapters * rank);
        const TensorView ds = random(tokens_, adapters * rank);
        std::vector<LoraSlot> slots;
        std::vector<LoraSegment> segments;
        for (std::int32_t i = 0; i < adapters; ++i) {
            slots.push_back({floats(rank * hidden), floats(rank * inter), floats(rank * hidden),
                             floats(rank * inter), rank, 1.0F, i * rank, dropout, 7});
            segments.push_back({i, tokens_ * i / adapters, tokens_ * (i + 1) / adapters, 0});
        }
        const LoraRows lora_rows{segments, rows()};
        const std::vector<LoraTarget> forward{{slots, s}};
        const std::vector<LoraTarget> backward{{slots, ds}};
        const double into_s = 2.0 * static_cast<double>(tokens_ * hidden * rank);
        const double into_y = 2.0 * static_cast<double>(tokens_ * inter * rank);
        flops(name + " shrink 768", into_s, [&] {
            backend_->lora_shrink({x, forward, lora_rows});
        });
        flops(name + " grad_a 768", into_s, [&] {
            backend_->lora_grad_a({x, backward, lora_rows});
        });
        flops(name + " expand_backward 768", into_s, [&] {
            backend_->lora_expand_backward({x, backward, lora_rows, true});
        });
        if (dropout > 0) return;
        flops(name + " expand 2048", into_y, [&] {
            backend_->lora_expand({forward[0], y, lora_rows});
        });
        flops(name + " backward 2048", 2.0 * into_y, [&] {
            backend_->lora_backward({y, forward[0], ds, lora_rows});
        });
        const TensorView b_pad = random(inter, adapters * rank, hidden);
        const TensorView a_pad = random(adapters * rank, hidden, padding);
        bytes(name + " pack 768+2048",
              8.0 * static_cast<double>(adapters * rank * (hidden + inter)), [&] {
                  const LoraPack op{slots, b_pad, a_pad};
                  backend_->lora_pack({&op, 1});
              });
    }

    void elementwise() {
        const double matrix_bytes = 4.0 * static_cast<double>(tokens_ * hidden);
        const double inter_bytes = 4.0 * static_cast<double>(tokens_ * inter);
        const TensorView x = random(tokens_, hidden, padding);
        const TensorView y = random(tokens_, hidden, padding);
        const TensorView gate = random(tokens_, inter, padding);
        const TensorView up = random(tokens_, inter, padding);
        const TensorView h = random(tokens_, inter, padding);
        const TensorView dgate = random(tokens_, inter, padding);
        const TensorView dup = random(tokens_, inter, padding);
        const TensorView table = random(vocabulary, hidden);
        const float* weight = floats(hidden);
        const float* inv_freq = floats(head_dim / 2);
        std::vector<std::int32_t> ids;
        for (std::int64_t i = 0; i < tokens_; ++i) {
            ids.push_back(static_cast<std::int32_t>(i * 31 % vocabulary));
        }
        bytes("rms_norm 768", 2 * matrix_bytes, [&] {
            backend_->rms_norm({x, weight, 1e-6F, 1, y});
        });
        bytes("rms_norm_backward 768, accumulate", 4 * matrix_bytes, [&] {
            backend_->rms_norm_backward({x, weight, 1e-6F, 1, y, y, true});
        });
        bytes("rope 12 x 64", 2 * matrix_bytes, [&] {
            backend_->rope({x, head_dim, inv_freq, positions_.data(), false});
        });
        bytes("swiglu 2048", 3 * inter_bytes, [&] { backend_->swiglu({gate, up, h}); });
        bytes("swiglu_backward 2048, with h", 6 * inter_bytes, [&] {
            backend_->swiglu_backward({gate, up, h, dgate, dup, h});
        });
        bytes("add_bias 768", 2 * matrix_bytes, [&] { backend_->add_bias({y, weight}); });
        bytes("copy 768", 2 * matrix_bytes, [&] { backend_->copy({y, x}); });
        bytes("gather_rows 768", 2 * matrix_bytes, [&] {
            backend_->gather_rows({y, table, ids.data(), 1.0F});
        });
    }

    void attention() {
        const TensorView q = random(tokens_, heads * head_dim, padding);
        const TensorView k = random(tokens_, kv_heads * head_dim, padding);
        const TensorView v = random(tokens_, kv_heads * head_dim, padding);
        const TensorView o = random(tokens_, heads * head_dim, padding);
        const TensorView dq = random(tokens_, heads * head_dim, padding);
        const TensorView dk = random(tokens_, kv_heads * head_dim, padding);
        const TensorView dv = random(tokens_, kv_heads * head_dim, padding);
        const Attention op{q, k, v, o, floats(tokens_ * heads), head_dim, 0.125F, rows()};
        const double pairs = static_cast<double>(tokens_ * heads) * (sample_tokens + 1) / 2.0;
        flops("attention, samples of 256", 4.0 * pairs * head_dim,
              [&] { backend_->attention(op); });
        flops("attention_backward", 10.0 * pairs * head_dim, [&] {
            backend_->attention_backward({op, o, dq, dk, dv});
        });
    }

    void loss() {
        const std::int64_t count = 512;
        const TensorView logits = random(count, vocabulary);
        const std::vector<std::int32_t> targets(count, 5);
        const std::vector<std::int32_t> bins(count, 0);
        const std::vector<float> scales(count, 1.0F);
        double losses = 0.0;
        double wrong = 0.0;
        bytes("cross_entropy 512 x 32000", 8.0 * static_cast<double>(count * vocabulary), [&] {
            backend_->cross_entropy(
                {logits, targets.data(), scales.data(), bins.data(), &losses, &wrong, true});
        });
    }

    void optimizer() {
        const std::int64_t count = 2'000'000;
        std::int64_t applied = 0;
        std::int64_t skipped = 0;
        double sumsq = 1.0;
        AdamW op;
        op.parameters = floats(count);
        op.gradients = floats(count);
        op.first_moments = floats(count);
        op.second_moments = floats(count);
        backend_->zero(op.second_moments, static_cast<std::size_t>(count) * 4);
        op.count = count;
        op.learning_rate = 1e-4;
        op.grad_sumsq = &sumsq;
        op.applied_steps = &applied;
        op.skipped_steps = &skipped;
        bytes("adamw 2M", 32.0 * static_cast<double>(count), [&] { backend_->adamw(op); });
        bytes("sum_squares 2M", 4.0 * static_cast<double>(count), [&] {
            backend_->sum_squares({op.parameters, count, &sumsq});
        });
    }

    std::unique_ptr<Backend> backend_;
    std::int64_t tokens_;
    std::vector<std::int32_t> offsets_, positions_, sample_ids_;
    std::vector<Buffer> buffers_;
};

}  // namespace
}  // namespace loratrain

int main(int argc, char** argv) {
    const int threads = argc > 1 ? std::atoi(argv[1]) : 1;
    const int tokens = argc > 2 ? std::atoi(argv[2]) : 1024;
    loratrain::Bench(threads, tokens).run();
    return 0;
}
