#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "backend/backend.h"
#include "io/safetensors.h"
#include "plan/memory_model.h"

namespace loratrain {

/// Where the factors of one linear lie in an adapter's flat arrays; rank 0 = not targeted.
struct FactorPlace {
    std::int64_t a = 0;  ///< offset of A [r, K]
    std::int64_t b = 0;  ///< offset of B [N, r]
    std::int32_t rank = 0;
};

/// Names (PEFT) and shapes, without values, of an adapter's tensors in a range of layers, in the
/// order of the flat arrays.
std::vector<NamedTensor> adapter_tensors(const AdapterJob& adapter, const ModelSpec& model,
                                         std::int64_t first_layer, std::int64_t layer_count);

/// All adapters' trainable state in the layers of one stage: fp32 masters, gradients and both
/// moments, each one flat array per adapter (so clipping and AdamW are one op per adapter), plus
/// the per-adapter sums and counters. Order inside an array: layers ascending; in a layer the
/// linear groups in order, in a group first every A, then every B.
class AdapterBank {
  public:
    /// Allocates and initialises as PEFT: A ~ U(-1/sqrt(K), 1/sqrt(K)) from
    /// tensor_key(seed, name, module + ".lora_A"), B = 0; or from init_from (checked files).
    AdapterBank(const Job& job, const ModelSpec& model, std::int32_t first_layer,
                std::int32_t layer_count, Backend& backend);

    /// The factors as an op's slot; `layer` counts from the stage's first layer.
    LoraSlot slot(AdapterId adapter, std::int32_t layer, Linear linear) const;
    bool targets_group(AdapterId adapter, LinearGroup group) const;

    std::int64_t parameters(AdapterId adapter) const { return states_[index(adapter)].count; }
    const float* gradients(AdapterId adapter) const { return states_[index(adapter)].gradients(); }

    /// Changes whenever the adapter's parameters change: copies made of them can be told stale.
    std::int64_t version(AdapterId adapter) const { return states_[index(adapter)].version; }

    /// Sum of squares of the adapter's gradients on this stage into *result (backend memory).
    void sum_squares(AdapterId adapter, double* result) const;
    /// AdamW on this stage's part with the norm total at *grad_sumsq; zeroes the gradients.
    void step(AdapterId adapter, double learning_rate, const double* grad_sumsq);

    /// Host copies for export and checkpoints: tensors of this stage with PEFT names.
    enum class Part : std::uint8_t { parameters, first_moments, second_moments, gradients };
    std::vector<NamedTensor> download(AdapterId adapter, Part part) const;
    /// The reverse; `values` in the order of download().
    void upload(AdapterId adapter, Part part, const std::vector<NamedTensor>& tensors);

    struct Counters {
        std::int64_t applied_steps = 0;
        std::int64_t skipped_steps = 0;
    };
    Counters counters(AdapterId adapter) const;
    void set_counters(AdapterId adapter, const Counters& counters);

  private:
    struct State {
        Buffer arrays[4];
        std::int64_t count = 0;
        std::int64_t version = 0;
        std::vector<std::array<FactorPlace, linear_count>> layers;
        float* parameters() const { return arrays[0].as<float>(); }
        float* first_moments() const { return arrays[1].as<float>(); }
        float* second_moments() const { return arrays[2].as<float>(); }
        float* gradients() const { return arrays[3].as<float>(); }
    };

    void place_factors(const AdapterJob& adapter, State& state) const;
    void initialise(const AdapterJob& adapter, const State& state);
    float* array(AdapterId adapter, Part part) const;

    const Job& job_;
    const ModelSpec& model_;
    std::int32_t first_layer_;
    std::int32_t layer_count_;
    Backend& backend_;
    std::vector<State> states_;
    Buffer counters_;  ///< applied, skipped per adapter
};

}  // namespace loratrain
