#include <algorithm>
#include <cmath>
#include <map>
#include <thread>
#include <vector>

#include "base/error.h"
#include "base/rng.h"
#include "io/base_weights.h"
#include "io/checksum.h"

namespace loratrain {

namespace {

constexpr std::int64_t values_per_thread = 1 << 18;

/// A tensor of uniform random numbers in center +- half_width.
struct RandomTensor {
    std::int64_t rows = 0;
    std::int64_t cols = 0;
    std::uint64_t key = 0;
    float center = 0.0F;
    float half_width = 0.0F;
};

bool is_norm(const std::string& name) {
    return name.ends_with("norm.weight");
}

/// Linears keep the variance of their input; those that add to the residual stream share it out
/// over the layers, so that activations stay bounded at any depth.
float half_width(const BaseTensor& tensor, const ModelSpec& spec) {
    if (is_norm(tensor.name)) return 0.1F;
    if (tensor.name.ends_with(".bias")) return 0.02F;
    if (tensor.name == "model.embed_tokens.weight") return 1.0F;
    const bool adds_to_residual = tensor.name.find(".o_proj.") != std::string::npos ||
                                  tensor.name.find(".down_proj.") != std::string::npos;
    const double share = adds_to_residual ? 1.0 / (2.0 * static_cast<double>(spec.layers)) : 1.0;
    return static_cast<float>(std::sqrt(3.0 * share / static_cast<double>(tensor.shape.back())));
}

std::string identity(const ModelSpec& spec, std::uint64_t seed) {
    Checksum checksum;
    for (const BaseTensor& tensor : base_tensors(spec)) {
        std::string line = tensor.name;
        for (const std::int64_t extent : tensor.shape) line += cat(" ", extent);
        checksum.update(line.data(), line.size());
    }
    checksum.update(&seed, sizeof(seed));
    return "synthetic-" + checksum.hex();
}

class SyntheticWeights : public WeightSource {
  public:
    SyntheticWeights(const ModelSpec& spec, std::uint64_t seed)
        : spec_(spec), checksum_(identity(spec, seed)) {
        for (const BaseTensor& tensor : base_tensors(spec)) {
            const bool vector = tensor.shape.size() == 1;
            tensors_[tensor.name] = {vector ? 1 : tensor.shape[0], tensor.shape.back(),
                                     tensor_key(seed, "base", tensor.name),
                                     is_norm(tensor.name) ? 1.0F : 0.0F, half_width(tensor, spec)};
        }
    }

    const ModelSpec& spec() const override { return spec_; }
    std::string checksum() const override { return checksum_; }

    void read_rows(const std::string& name, std::int64_t first_row,
                   const TensorView& target) const override {
        const auto found = tensors_.find(name);
        LORATRAIN_CHECK(found != tensors_.end(), name);
        const RandomTensor& tensor = found->second;
        LORATRAIN_CHECK(
            first_row >= 0 && target.cols == tensor.cols && first_row + target.rows <= tensor.rows,
            name, ": rows ", first_row, " + ", target.rows, " of ", tensor.rows);
        fill_rows(tensor, first_row, target);
    }

  private:
    static void fill_rows(const RandomTensor& tensor, std::int64_t first_row,
                          const TensorView& target) {
        const auto workers =
            std::clamp<std::int64_t>(target.numel() / values_per_thread, 1,
                                     std::max(1U, std::thread::hardware_concurrency()));
        std::vector<std::jthread> threads;
        for (std::int64_t w = 0; w < workers; ++w) {
            threads.emplace_back([&, w] {
                for (std::int64_t row = w; row < target.rows; row += workers) {
                    fill_row(tensor, first_row + row, target.row_range(row, 1));
                }
            });
        }
    }

    /// Eight 16-bit numbers per block of random words; rows are independent of each other.
    static void fill_row(const RandomTensor& tensor, std::int64_t row, const TensorView& target) {
        for (std::int64_t first = 0; first < tensor.cols; first += 8) {
            const auto words =
                philox4x32({static_cast<std::uint32_t>(first / 8), static_cast<std::uint32_t>(row),
                            static_cast<std::uint32_t>(row >> 32), 0},
                           tensor.key);
            const std::int64_t end = std::min<std::int64_t>(first + 8, tensor.cols);
            for (std::int64_t col = first; col < end; ++col) {
                const auto i = static_cast<std::uint32_t>(col - first);
                const std::uint32_t bits = (words[i / 2] >> (16U * (i % 2))) & 0xffffU;
                const float unit = (static_cast<float>(bits) + 0.5F) / 32768.0F - 1.0F;
                const float value = tensor.center + tensor.half_width * unit;
                if (target.dtype == DType::f32) {
                    target.f32()[col] = value;
                } else {
                    static_cast<BFloat16*>(target.data)[col] = to_bfloat16(value);
                }
            }
        }
    }

    ModelSpec spec_;
    std::string checksum_;
    std::map<std::string, RandomTensor> tensors_;
};

}  // namespace

std::unique_ptr<WeightSource> synthetic_base_weights(const ModelSpec& spec, std::uint64_t seed) {
    return std::make_unique<SyntheticWeights>(spec, seed);
}

}  // namespace loratrain
