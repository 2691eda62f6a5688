#include <algorithm>
#include <cmath>
#include <map>
#include <mutex>
#include <vector>

#include "base/error.h"
#include "base/quantized.h"
#include "base/rng.h"
#include "base/threads.h"
#include "io/checksum.h"
#include "io/tensor_names.h"
#include "io/weights/base_weights.h"

namespace loratrain {

namespace {

struct RandomTensor {
    std::int64_t rows = 0;
    std::int64_t cols = 0;
    RandomMatrix values;
    std::string origin;
};

/// A whole matrix.
struct HeldCodes {
    std::vector<std::uint8_t> codes;
    std::vector<float> scales;
};

/// Linears keep the variance of their input; those that add to the residual stream share it out
/// over the layers, so that activations stay bounded at any depth.
float half_width(const BaseTensor& tensor, const ModelSpec& spec) {
    if (is_norm_name(tensor.name)) return 0.1F;
    if (is_bias_name(tensor.name)) return 0.02F;
    if (tensor.name == embedding_name) return 1.0F;
    const bool adds_to_residual = is_name_of(tensor.name, Linear::o) ||
                                  is_name_of(tensor.name, Linear::down) ||
                                  is_name_of(tensor.name, Linear::delta_out);
    const double share = adds_to_residual ? 1.0 / (2.0 * static_cast<double>(spec.layers)) : 1.0;
    return static_cast<float>(std::sqrt(3.0 * share / static_cast<double>(tensor.shape.back())));
}

/// What the tensor's values come from: linears that are quantised have those of the first layer.
std::string origin(const BaseTensor& tensor, const ModelSpec& spec) {
    if (!spec.quantization) return tensor.name;
    for (int i = 0; i < linear_count; ++i) {
        const auto linear = static_cast<Linear>(i);
        if (!is_name_of(tensor.name, linear)) continue;
        const std::int32_t expert = expert_in_name(tensor.name);
        return expert == no_expert ? weight_name(0, linear) : expert_weight_name(0, expert, linear);
    }
    return tensor.name;
}

std::string identity(const ModelSpec& spec, std::uint64_t seed) {
    Checksum checksum;
    for (const BaseTensor& tensor : base_tensors(spec)) {
        std::string line = tensor.name;
        for (const std::int64_t extent : tensor.shape) line += cat(" ", extent);
        checksum.update(line.data(), line.size());
    }
    checksum.update(&seed, sizeof(seed));
    if (spec.quantization) {
        const std::string how = to_string(*spec.quantization);
        checksum.update(how.data(), how.size());
        const std::string which = "of one layer";
        checksum.update(which.data(), which.size());
    }
    return "synthetic-" + checksum.hex();
}

class SyntheticWeights : public WeightSource {
  public:
    SyntheticWeights(const ModelSpec& spec, std::uint64_t seed)
        : spec_(spec), checksum_(identity(spec, seed)) {
        for (const BaseTensor& tensor : base_tensors(spec)) {
            const bool vector = tensor.shape.size() == 1;
            const std::string from = origin(tensor, spec);
            tensors_[tensor.name] = {
                vector ? 1 : tensor.shape[0],
                tensor.shape.back(),
                {tensor_key(seed, "base", from),
                 is_norm_name(tensor.name) && !spec.norm_plus_one ? 1.0F : 0.0F,
                 half_width(tensor, spec)},
                from};
        }
    }

    const ModelSpec& spec() const override { return spec_; }
    std::string checksum() const override { return checksum_; }

    void read_rows(const std::string& name, std::int64_t first_row,
                   const TensorView& target) const override {
        const RandomTensor& tensor = at(name);
        LORATRAIN_CHECK(
            first_row >= 0 && target.cols == tensor.cols && first_row + target.rows <= tensor.rows,
            name, ": rows ", first_row, " + ", target.rows, " of ", tensor.rows);
        if (is_quantized(name)) return read_effective(name, first_row, target);
        fill_rows(tensor.values, first_row, target);
    }

    void read_codes(const std::string& name, std::int64_t first_row, std::int64_t count,
                    void* codes, float* scales) const override {
        LORATRAIN_CHECK(is_quantized(name), name);
        const RandomTensor& tensor = at(name);
        LORATRAIN_CHECK(first_row >= 0 && first_row + count <= tensor.rows, name, ": rows ",
                        first_row, " + ", count, " of ", tensor.rows);
        const WeightTraits& traits = traits_of(spec_.quantization->format);
        const auto row_bytes = static_cast<std::int64_t>(code_bytes(traits, tensor.cols));
        const std::int64_t row_scales = scale_count(traits, tensor.cols);
        const HeldCodes& held = codes_of(tensor);
        share_rows(count, tensor.cols, [&](std::int64_t begin, std::int64_t end) {
            const std::int64_t from = first_row + begin;
            std::copy_n(held.codes.begin() + from * row_bytes, (end - begin) * row_bytes,
                        static_cast<std::uint8_t*>(codes) + begin * row_bytes);
            std::copy_n(held.scales.begin() + from * row_scales, (end - begin) * row_scales,
                        scales + begin * row_scales);
        });
    }

    std::optional<RandomMatrix> random_matrix(const std::string& name) const override {
        if (is_quantized(name)) return std::nullopt;
        return at(name).values;
    }

  private:
    const RandomTensor& at(const std::string& name) const {
        const auto found = tensors_.find(name);
        LORATRAIN_CHECK(found != tensors_.end(), name);
        return found->second;
    }

    bool is_quantized(const std::string& name) const {
        return spec_.quantization && is_linear_weight(name);
    }

    /// Made once for all layers: quantising 70 billion weights takes minutes on few processors.
    const HeldCodes& codes_of(const RandomTensor& tensor) const {
        const std::scoped_lock lock(held_mutex_);
        HeldCodes& held = held_[tensor.origin];
        if (!held.codes.empty()) return held;
        const auto [format, source] = *spec_.quantization;
        const WeightTraits& traits = traits_of(format);
        const auto row_bytes = static_cast<std::int64_t>(code_bytes(traits, tensor.cols));
        const std::int64_t row_scales = scale_count(traits, tensor.cols);
        held.codes.resize(static_cast<std::size_t>(tensor.rows * row_bytes));
        held.scales.resize(static_cast<std::size_t>(tensor.rows * row_scales));
        share_rows(tensor.rows, tensor.cols, [&](std::int64_t begin, std::int64_t end) {
            std::vector<float> row(static_cast<std::size_t>(tensor.cols));
            for (std::int64_t i = begin; i < end; ++i) {
                fill_random_rows(tensor.values, i, matrix(row.data(), DType::f32, 1, tensor.cols));
                round_to(source, row);
                quantize_row(format, row, held.codes.data() + i * row_bytes,
                             held.scales.data() + i * row_scales);
            }
        });
        return held;
    }

    void read_effective(const std::string& name, std::int64_t first_row,
                        const TensorView& target) const {
        const auto [format, source] = *spec_.quantization;
        const WeightTraits& traits = traits_of(format);
        std::vector<std::uint8_t> codes(static_cast<std::size_t>(target.rows) *
                                        code_bytes(traits, target.cols));
        std::vector<float> scales(
            static_cast<std::size_t>(target.rows * scale_count(traits, target.cols)));
        read_codes(name, first_row, target.rows, codes.data(), scales.data());
        effective_rows(
            {format, source, codes.data(), scales.data(), target.rows, target.cols, target.cols},
            target);
    }

    static void fill_rows(const RandomMatrix& values, std::int64_t first_row,
                          const TensorView& target) {
        share_rows(target.rows, target.cols, [&](std::int64_t begin, std::int64_t end) {
            fill_random_rows(values, first_row + begin, target.row_range(begin, end - begin));
        });
    }

    ModelSpec spec_;
    std::string checksum_;
    std::map<std::string, RandomTensor> tensors_;
    mutable std::mutex held_mutex_;
    mutable std::map<std::string, HeldCodes> held_;  ///< by RandomTensor::origin
};

}  // namespace

std::unique_ptr<WeightSource> synthetic_base_weights(const ModelSpec& spec, std::uint64_t seed) {
    return std::make_unique<SyntheticWeights>(spec, seed);
}

}  // namespace loratrain
