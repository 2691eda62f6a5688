#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "backend/backend.h"
#include "config/layer_tensors.h"
#include "io/weights/base_weights.h"
#include "model/layer_stream.h"
#include "model/weight_reader.h"
#include "model/weight_view.h"
#include "plan/memory/memory_model.h"
#include "plan/tensor_shard.h"

namespace loratrain {

/// The frozen weights of a stage in the backend's memory.

/// A column block of pads: whose factors, where, and which version of them (AdapterBank::version).
struct PackedFactors {
    AdapterId adapter{};
    std::int32_t column = 0;
    std::int64_t version = 0;
    bool operator==(const PackedFactors&) const = default;
};

/// A frozen matrix and the memory that holds it.
struct FrozenMatrix {
    Buffer storage;  ///< empty where the layer streams
    WeightView view;
};

/// One linear group with Plan::fp8_linears (Fp8GroupLayout): W is codes[n, k] scales[n] in forward
/// and, so that gradients belong to the very same weights, in backward. LoRA's factors lie beside
/// it, in compute type.
struct Fp8Weights {
    Buffer storage;      ///< empty where the layer streams
    Fp8Rows codes;       ///< [N, K]
    Fp8Rows transposed;  ///< [K, N], scales 1; without codes where Plan::fp8_one_order
    TensorView b_pad;    ///< [N, R]
    TensorView a_pad;    ///< [linears x R, K]
};

/// One linear group of one layer. `matrix` is W [N, K]. GEMMs read the augmented matrix of
/// design.md "One augmented matrix" (augmented_shape),
///   M = [[W_1 | B_1], ..., [W_n | B_n], [A_1], ..., [A_n]]: rows N + n R, columns K + R, ld K + R
/// (forward: Y_i = [X | S_i] [W_i | B_i]ᵀ; backward: dX = [dY | dS] [W; A]), with joined products
/// (column_blocks) rows [W_1 | B_1 0 ... 0], ..., [W_n | 0 ... 0 B_n] for Y = [X | S_1 ... S_n]
/// [W | B]ᵀ: resident weights are stored in it, staged ones without its pads.
struct GroupWeights {
    LinearGroupShape shape;
    FrozenMatrix matrix;  ///< without storage where there is `fp8`
    Fp8Weights fp8;
    std::array<Buffer, most_group_linears> bias;  ///< per linear, empty = none
    /// What the pads hold now, and their width.
    std::vector<PackedFactors> packed;
    std::int64_t packed_width = -1;
};

/// W of all experts, one after another; with Plan::fp8_linears its codes, and those of each expert
/// transposed (Fp8ExpertsLayout).
struct ExpertMatrix {
    FrozenMatrix matrix;  ///< without a view where there are codes
    Fp8Rows codes;
    Fp8Rows transposed;
};

/// Of a layer with experts (ExpertSpec), as experts_gate_up_shape() says.
struct ExpertWeights {
    ExpertMatrix gate_up;
    ExpertMatrix down;
};

struct LayerWeights {
    LayerSpec spec;
    const float* inv_freq = nullptr;                  ///< rope_frequencies() of its rope
    std::array<Buffer, layer_tensor_count> tensors;   ///< empty where the layer has none
    std::array<float, layer_tensor_count> numbers{};  ///< those of is_on_host()
    ExpertWeights experts;
    std::array<GroupWeights, linear_group_count> groups;

    const Buffer& tensor(LayerTensor which) const {
        return tensors[static_cast<std::size_t>(which)];
    }
    float number(LayerTensor which) const { return numbers[static_cast<std::size_t>(which)]; }
};

/// The frozen tensors of one stage on the backend, read slice by slice through a bounded block. A
/// lane has its slices of the linears, of the vocabulary and of other tensors
/// (plan/tensor_shard.h); of the biases of o, of down and of experts' down, which enter a sum
/// over the lanes, only the first lane has more than zeros. Rows are read whole: of o and down more
/// is read than kept.
class FrozenWeights {
  public:
    /// `shared_layers`: of weights that ranks have between them, with which loading is collective;
    /// it outlives this object.
    FrozenWeights(const ReplicaView& view, const StagePlan& stage, const WeightSource& source,
                  Backend& backend, std::int32_t lane = 0, SharedLayers* shared_layers = nullptr);

    /// The linears of layers that stream are there between use() and done() alone.
    LayerWeights& layer(std::int32_t local) { return layers_[static_cast<std::size_t>(local)]; }
    /// Whether any layer streams, and this one.
    bool streams() const { return stream_ != nullptr; }
    bool streams(std::int32_t local) const { return is_streamed(stage_, local); }
    /// The layers of the stage that are used from now on, in order, so that those that stream come
    /// in time.
    void expect(const std::vector<std::int32_t>& layers);
    /// For what is queued until done(): one layer at a time.
    LayerWeights& use(std::int32_t local);
    void done(std::int32_t local);
    /// The layers that stream, for their record; null where none does.
    LayerStream* stream() { return stream_.get(); }
    /// Rows vocabulary() of [V, H], first and last stage.
    const WeightView& embedding() const { return embedding_.view; }
    const WeightView& head() const { return head_.view; }
    const Slice& vocabulary() const { return vocabulary_; }
    const void* final_norm() const { return final_norm_.data(); }

  private:
    void load(SharedLayers* shared_layers);
    void load_layers();
    /// Memory for the layers that this rank owns, which others read.
    void make_room(SharedLayers& shared_layers);
    /// All but the linears.
    void load_tensors(std::int32_t layer, LayerWeights& weights);
    /// A lane has its part of what lanes share.
    void load_tensor(std::int32_t layer, LayerTensor which, LayerWeights& weights);
    void load_linears(std::int32_t layer, LayerWeights& weights);
    /// Experts do not stream.
    void load_experts(std::int32_t layer, ExpertWeights& weights);
    ExpertMatrix allocate_experts(const MatrixShape& shape);
    void transpose_experts(ExpertMatrix& of, std::int64_t count);
    /// weight_view() in the format and residence of linears.
    WeightView linear_view(void* data, const MatrixShape& stored, const MatrixShape& shape) const;
    void load_streamed(std::int32_t local, LayerWeights& weights);
    /// Reads linears straight into host memory, where it has them as their file does; else false.
    bool read_linears(std::int32_t layer, char* host);
    bool is_read_as_it_is(std::int32_t layer) const;
    void load_group(std::int32_t layer, LinearGroup group, GroupWeights& weights);
    void load_fp8_group(std::int32_t layer, GroupWeights& weights);
    /// The codes of a linear as its file has them, or made of its weights.
    void load_codes(const std::string& name, const TensorPart& part, const Fp8Rows& codes);
    /// Where the group's linears lie from now on: as stored_layout or Fp8GroupLayout say, behind
    /// `data`.
    void place_group(LinearGroup group, void* data, GroupWeights& weights);
    void place_in(char* buffer, LayerWeights& weights);
    /// So that nothing reads what a buffer holds of another layer.
    static void take_away(LayerWeights& weights);
    /// Memory of a resident layer's group, with the group placed in it.
    Buffer allocate_group(LinearGroup group, GroupWeights& weights);
    void make_unit_scales();
    void load_biases(std::int32_t layer, GroupWeights& weights);
    Buffer load_bias(std::int32_t layer, Linear linear);
    Buffer load_frequencies(const RopeSpec& rope);
    const float* frequencies_of(const RopeSpec& rope) const;
    /// Elements `own` of a vector of `whole`.
    Buffer load_vector(const std::string& name, std::int64_t whole, const Slices& own);
    FrozenMatrix load_vocabulary(const std::string& name);

    TensorPart part_of(Linear linear) const;
    TensorPart part_of(Linear linear, const LayerLinear& of) const;

    ReplicaView view_;
    StagePlan stage_;
    TensorLane lane_;
    StreamedLayer streamed_;
    Slice vocabulary_;
    const WeightSource& source_;
    Backend& backend_;
    WeightReader reader_;
    Buffer held_;           ///< linears of the layers that this rank owns, which others read
    char* room_ = nullptr;  ///< where these begin; null where it owns none
    std::vector<LayerWeights> layers_;
    std::unique_ptr<LayerStream> stream_;  ///< null where all layers are resident
    FrozenMatrix embedding_;
    FrozenMatrix head_;  ///< without storage where it is tied to the embedding of this stage
    Buffer final_norm_;
    std::vector<Buffer> inv_freq_;  ///< in the order of ropes_of()
    Buffer unit_scales_;
    Buffer dense_;  ///< of a linear whose codes are made, while loading
};

}  // namespace loratrain
