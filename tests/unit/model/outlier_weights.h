#pragma once

#include <algorithm>
#include <array>
#include <string>
#include <vector>

#include "adapter/adapter_bank.h"
#include "io/weights/base_weights.h"

namespace loratrain::test {

inline constexpr std::array outlier_channels{3, 40, 77};
inline constexpr float outlier = 32.0F;

/// Of q, k, v, gate and up, which read what a norm wrote.
inline bool reads_norm(const std::string& name) {
    constexpr std::array readers{"q_proj", "k_proj", "v_proj", "gate_proj", "up_proj"};
    return std::any_of(readers.begin(), readers.end(),
                       [&](const char* reader) { return name.find(reader) != std::string::npos; });
}

/// Weights of another source, some channels of each norm 2^5 times as large and the columns of the
/// linears that read them as much smaller: the same model, whose activations have outliers.
class OutlierWeights final : public WeightSource {
  public:
    explicit OutlierWeights(const WeightSource& inner) : inner_(inner) {}
    const ModelSpec& spec() const override { return inner_.spec(); }
    std::string checksum() const override { return inner_.checksum() + "-outliers"; }
    void read_rows(const std::string& name, std::int64_t first_row,
                   const TensorView& target) const override {
        inner_.read_rows(name, first_row, target);
        const bool norm = name.find("layernorm") != std::string::npos;
        if (!norm && !reads_norm(name)) return;
        for (std::int64_t row = 0; row < target.rows; ++row) {
            for (const int channel : outlier_channels) {
                target.f32()[row * target.ld + channel] *= norm ? outlier : 1.0F / outlier;
            }
        }
    }

  private:
    const WeightSource& inner_;
};

/// Makes an adapter's factors A such that on OutlierWeights they add what they did without.
inline void divide_outlier_columns(std::vector<NamedTensor>& tensors, std::int64_t hidden_size) {
    const auto columns = static_cast<std::size_t>(hidden_size);
    for (NamedTensor& tensor : tensors) {
        if (!reads_norm(tensor.name) || tensor.name.find("lora_A") == std::string::npos) continue;
        for (std::size_t row = 0; row < tensor.values.size(); row += columns) {
            for (const int channel : outlier_channels) {
                tensor.values[row + static_cast<std::size_t>(channel)] /= outlier;
            }
        }
    }
}

}  // namespace loratrain::test
