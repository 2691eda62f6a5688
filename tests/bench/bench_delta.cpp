#include <cstdio>
#include <cstdlib>
#include <functional>
#include <string>
#include <vector>

#include "backend/make_backend.h"
#include "base/operators.h"
#include "base/rng.h"
#include "base/text.h"
#include "gpu_time.h"

// Times the operators of gated delta nets on a GPU, in bf16 with heads of 128 columns:
// delta_beside_fla.py times flash-linear-attention at the same shapes. The best of several batches.
// bench_delta [tokens [key heads [value heads]]]

namespace loratrain {
namespace {

constexpr std::int64_t dim = 128;
constexpr std::int64_t sample_tokens = 2048;
constexpr std::int64_t conv_width = 4;

class DeltaBench {
  public:
    DeltaBench(std::int64_t tokens, std::int64_t key_heads, std::int64_t value_heads)
        : backend_(make_backend("cuda", {1, 0, DType::bf16})),
          tokens_(tokens),
          key_heads_(key_heads),
          value_heads_(value_heads) {
        std::printf("%s, %ld tokens, %ld key heads, %ld value heads of %ld\n",
                    backend_->description().c_str(), static_cast<long>(tokens),
                    static_cast<long>(key_heads), static_cast<long>(value_heads),
                    static_cast<long>(dim));
        const std::int64_t keys = key_heads * dim;
        const std::int64_t values = value_heads * dim;
        mixed_ = random(2 * keys + values);
        d_mixed_ = random(2 * keys + values);
        output_ = random(values);
        gate_ = random(values);
        d_output_ = random(values);
        d_gate_ = random(values);
        g_ = gates(-0.1F);
        beta_ = gates(1.0F);
        d_g_ = gates(0.0F);
        d_beta_ = gates(0.0F);
        weight_ = random(conv_width).data;
        states_ = static_cast<float*>(
            allocate(static_cast<std::size_t>(delta_states(tokens) * value_heads * dim * dim) * 4));
    }

    void run(std::int64_t length) {
        std::vector<std::int32_t> positions;
        offsets_.clear();
        for (std::int64_t row = 0; row < tokens_; ++row) {
            if (row % length == 0) offsets_.push_back(static_cast<std::int32_t>(row));
            positions.push_back(static_cast<std::int32_t>(row % length));
        }
        offsets_.push_back(static_cast<std::int32_t>(tokens_));
        const auto samples = static_cast<std::int64_t>(offsets_.size()) - 1;
        const PackedRows rows{tokens_,         samples,         ints(offsets_),
                              offsets_.data(), ints(positions), nullptr};
        const std::int64_t keys = key_heads_ * dim;
        const std::int64_t values = value_heads_ * dim;
        const auto parts = [&](const TensorView& all) {
            return std::vector<TensorView>{all.col_range(0, keys), all.col_range(keys, keys),
                                           all.col_range(2 * keys, values)};
        };
        const auto of = parts(mixed_);
        const auto d = parts(d_mixed_);
        const DeltaRule rule{of[0],   of[1],      of[2],        g_,      beta_,
                             output_, key_heads_, value_heads_, states_, rows};
        const std::string name = cat("samples of ", length, ": ");
        time(name + "delta_rule", [&] { backend_->delta_rule(rule); });
        time(name + "delta_rule_backward", [&] {
            backend_->delta_rule_backward({rule, d_output_, d[0], d[1], d[2], d_g_, d_beta_});
        });
        if (length != tokens_) return;
        const CausalConv conv{mixed_, weight_, conv_width, d_mixed_, rows};
        time("causal_conv", [&] { backend_->causal_conv(conv); });
        const TensorView dx = random(mixed_.cols);
        time("causal_conv_backward", [&] { backend_->causal_conv_backward({conv, d_mixed_, dx}); });
        const GatedNorm norm{output_, gate_, weight_, 1e-6F, value_heads_, d_output_};
        time("gated_norm", [&] { backend_->gated_norm(norm); });
        time("gated_norm_backward", [&] {
            backend_->gated_norm_backward({norm, d_output_, d_output_, d_gate_});
        });
    }

  private:
    void time(const std::string& name, const std::function<void()>& call) {
        call();
        backend_->synchronize();
        const double best = best_seconds(*backend_, 8, 5, call);
        std::printf("%-44s %10.1f us\n", name.c_str(), best * 1e6);
    }

    void* allocate(std::size_t size) {
        buffers_.push_back(backend_->allocate(size, "bench"));
        return buffers_.back().data();
    }
    std::int32_t* ints(const std::vector<std::int32_t>& values) {
        void* data = allocate(values.size() * sizeof(std::int32_t));
        backend_->upload(data, values.data(), values.size() * sizeof(std::int32_t));
        return static_cast<std::int32_t*>(data);
    }
    TensorView floats(std::int64_t cols, float least, float most) {
        std::vector<float> values(static_cast<std::size_t>(tokens_ * cols));
        ++seed_;
        for (std::size_t i = 0; i < values.size(); ++i) {
            values[i] = least + (most - least) * uniform_float(seed_, i);
        }
        const TensorView view =
            matrix(static_cast<float*>(allocate(values.size() * 4)), DType::f32, tokens_, cols);
        backend_->upload(view.data, values.data(), values.size() * 4);
        return view;
    }
    TensorView random(std::int64_t cols) {
        const TensorView view{allocate(static_cast<std::size_t>(tokens_ * cols) * 2), DType::bf16,
                              tokens_, cols, cols};
        backend_->copy({view, floats(cols, -1.0F, 1.0F)});
        backend_->synchronize();
        buffers_.pop_back();
        return view;
    }
    /// [T, Hv] of numbers between 0 and `most`.
    TensorView gates(float most) { return floats(value_heads_, 0.0F, most); }

    std::unique_ptr<Backend> backend_;
    std::int64_t tokens_;
    std::int64_t key_heads_;
    std::int64_t value_heads_;
    std::uint64_t seed_ = 0;
    std::vector<Buffer> buffers_;
    std::vector<std::int32_t> offsets_;
    TensorView mixed_;  ///< q, k and v side by side
    TensorView d_mixed_;
    TensorView output_;
    TensorView gate_;
    TensorView d_output_;
    TensorView d_gate_;
    TensorView g_;
    TensorView beta_;
    TensorView d_g_;
    TensorView d_beta_;
    void* weight_ = nullptr;
    float* states_ = nullptr;
};

}  // namespace
}  // namespace loratrain

int main(int argc, char** argv) {
    const auto argument = [&](int i, std::int64_t otherwise) {
        return argc > i ? std::atoll(argv[i]) : otherwise;
    };
    try {
        const std::int64_t tokens = argument(1, 8192);
        loratrain::DeltaBench bench(tokens, argument(2, 16), argument(3, 32));
        bench.run(tokens);
        if (tokens > loratrain::sample_tokens) bench.run(loratrain::sample_tokens);
    } catch (const std::exception& error) {
        std::fprintf(stderr, "%s\n", error.what());
        return 1;
    }
    return 0;
}
