#pragma once

#include <array>
#include <cstdint>
#include <utility>
#include <vector>

#include "backend/backend.h"
#include "io/weights/base_weights.h"
#include "plan/memory/memory_model.h"

namespace loratrain {

/// A column block of pads: whose factors, where, and which version of them (AdapterBank::version).
struct PackedFactors {
    AdapterId adapter{};
    std::int32_t column = 0;
    std::int64_t version = 0;
    bool operator==(const PackedFactors&) const = default;
};

/// One linear group of one layer. `matrix` is the augmented matrix of design decision 4,
///   M = [[W_1 | B_1], ..., [W_n | B_n], [A_1], ..., [A_n]]: rows N + n R, columns K + R, ld K + R
/// (forward: Y_i = [X | S_i] [W_i | B_i]ᵀ; backward: dX = [dY | dS] [W; A]), or, when weights are
/// staged, W alone in its storage type [N, K].
struct GroupWeights {
    LinearGroupShape shape;
    Buffer storage;
    TensorView matrix;
    std::array<Buffer, 3> bias;  ///< per linear, empty = none
    /// What the pads hold now, and their width.
    std::vector<PackedFactors> packed;
    std::int64_t packed_width = -1;
};

struct LayerWeights {
    Buffer input_norm;           ///< [H]
    Buffer post_attention_norm;  ///< [H]
    Buffer q_norm;               ///< [D], only with qk_norm
    Buffer k_norm;
    std::array<GroupWeights, linear_group_count> groups;
};

/// The frozen tensors of one stage on the backend, read slice by slice through a bounded block.
class FrozenWeights {
  public:
    FrozenWeights(const ReplicaView& view, const StagePlan& stage, const WeightSource& source,
                  Backend& backend);

    LayerWeights& layer(std::int32_t local) { return layers_[static_cast<std::size_t>(local)]; }
    const TensorView& embedding() const { return embedding_; }  ///< [V, H], first stage
    const TensorView& head() const { return head_; }            ///< [V, H], last stage
    const void* final_norm() const { return final_norm_.data(); }
    const float* inv_freq() const { return inv_freq_.as<float>(); }

  private:
    void load_layer(std::int32_t layer, LayerWeights& weights);
    void load_group(std::int32_t layer, LinearGroup group, GroupWeights& weights);
    Buffer load_vector(const std::string& name, std::int64_t size);
    Buffer load_matrix(const std::string& name, TensorView& view);
    void load_rows(const std::string& name, const TensorView& target);

    ReplicaView view_;
    const WeightSource& source_;
    Backend& backend_;
    std::vector<LayerWeights> layers_;
    Buffer embedding_storage_;
    Buffer head_storage_;
    TensorView embedding_;
    TensorView head_;
    Buffer final_norm_;
    Buffer inv_freq_;
};

}  // namespace loratrain
