#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "backend/backend.h"
#include "io/safetensors.h"
#include "plan/memory/memory_model.h"
#include "plan/stage_layers.h"

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
                                         const LayerRange& layers);

/// Where an adapter's state is.
enum class Residence : std::uint8_t {
    absent,     ///< nowhere: it has not begun
    resident,   ///< in backend memory: it may train and be evaluated
    suspended,  ///< in host memory, exactly as it was
    released,   ///< given up here: a checkpoint keeps it
};

/// All adapters' trainable state in the layers where one stage computes them: fp32 masters,
/// gradients and both moments, each one flat array per adapter (so clipping and AdamW are one op
/// per adapter), plus the per-adapter sums and counters. Order inside an array: layers ascending;
/// in a layer the linear groups in order, in a group first every A, then every B. Only resident
/// adapters take backend memory; what is done to one must be done on every stage.
class AdapterBank {
  public:
    /// Makes plan.first_admitted resident; plan.adapter_capacity bounds the adapters that `job`,
    /// which may grow (add_adapters()), ever has. All three outlive the bank.
    AdapterBank(const Job& job, const ReplicaView& view, const StagePlan& stage, Backend& backend);

    Residence residence(AdapterId adapter) const { return states_[index(adapter)].residence; }

    /// Brings an adapter into backend memory: a suspended one as it was, an absent one initialised
    /// as PEFT: A ~ U(-1/sqrt(K), 1/sqrt(K)) from tensor_key(seed, name, module + ".lora_A"),
    /// B = 0; or from init_from (checked files). Waits for the backend.
    void reside(AdapterId adapter);
    /// Moves a resident adapter's parameters, moments and counters to host memory. Its gradients
    /// must be zero, as they are between two of its global batches. Waits for the backend.
    void suspend(AdapterId adapter);
    /// Suspends whoever is resident and not among `admitted`, then brings those in that are not
    /// resident yet: never more is in backend memory than either set takes.
    void admit(const std::vector<AdapterId>& admitted);
    /// Frees all memory of an adapter that has ended and is exported and in a checkpoint.
    void release(AdapterId adapter);
    /// The job has got more adapters; they are absent.
    void add_adapters();

    /// The factors as an op's slot; `layer` counts from the stage's first layer.
    LoraSlot slot(AdapterId adapter, std::int32_t layer, Linear linear) const;
    bool targets_group(AdapterId adapter, LinearGroup group) const;

    std::int64_t parameters(AdapterId adapter) const { return states_[index(adapter)].count; }
    const float* gradients(AdapterId adapter) const { return states_[index(adapter)].gradients(); }

    /// Grows whenever the adapter's parameters change or move: copies made of them can be told
    /// stale.
    std::int64_t version(AdapterId adapter) const { return states_[index(adapter)].version; }

    /// Sum of squares of the adapter's gradients on this stage into *result (backend memory).
    void sum_squares(AdapterId adapter, double* result) const;
    /// AdamW on this stage's part with the norm total at *grad_sumsq; zeroes the gradients.
    void step(AdapterId adapter, double learning_rate, const double* grad_sumsq);

    /// Host copies for export and checkpoints: tensors of this stage with PEFT names. Of resident
    /// and suspended adapters.
    enum class Part : std::uint8_t { parameters, first_moments, second_moments, gradients };
    std::vector<NamedTensor> download(AdapterId adapter, Part part) const;
    /// The reverse; `values` in the order of download(). An absent adapter becomes suspended by it,
    /// with zeros in the other parts.
    void upload(AdapterId adapter, Part part, const std::vector<NamedTensor>& tensors);

    struct Counters {
        std::int64_t applied_steps = 0;
        std::int64_t skipped_steps = 0;
    };
    Counters counters(AdapterId adapter) const;
    void set_counters(AdapterId adapter, const Counters& counters);

  private:
    struct HostState {
        std::array<std::vector<float>, 3> arrays;  ///< parameters, both moments
        Counters counters;
    };
    struct State {
        Residence residence = Residence::absent;
        Buffer arrays[4];     ///< resident only
        HostState suspended;  ///< suspended only
        std::int64_t count = 0;
        std::int64_t version = 0;
        std::vector<std::array<FactorPlace, linear_count>> layers;
        float* parameters() const { return arrays[0].as<float>(); }
        float* first_moments() const { return arrays[1].as<float>(); }
        float* second_moments() const { return arrays[2].as<float>(); }
        float* gradients() const { return arrays[3].as<float>(); }
    };

    void place_factors(AdapterId adapter);
    void initialise(AdapterId adapter);
    /// The state of an adapter that must be resident.
    const State& resident(AdapterId adapter) const;
    void check_gradients_are_zero(AdapterId adapter) const;
    std::int64_t* counters_of(AdapterId adapter) const {
        return counters_.as<std::int64_t>() + 2 * index(adapter);
    }

    const Job& job_;
    ModelSpec model_;
    StagePlan stage_;
    std::size_t capacity_;
    Backend& backend_;
    std::vector<State> states_;
    Buffer counters_;  ///< applied, skipped per adapter
};

}  // namespace loratrain
