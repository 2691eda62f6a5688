#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "base/tensor.h"
#include "plan/memory/memory_model.h"

namespace loratrain {

/// What layers of each kind of mixer and of MLP save, hold and compute with: structs per kind, and
/// a function per kind and purpose in kind_memory.cpp that says what of them there is. The memory
/// model counts its bytes; ActivationSlot and Workspace allocate just these. T = microbatch_tokens,
/// H = hidden_size, R = saved_columns, e = bytes of the compute type.

/// So many of something, at most `most`.
template <class T, std::size_t most>
class Few {
  public:
    T& add(const T& item) {
        items_.at(count_) = item;
        return items_[count_++];
    }
    const T* begin() const { return items_.data(); }
    const T* end() const { return items_.data() + count_; }

  private:
    std::array<T, most> items_{};
    std::size_t count_ = 0;
};

// ---- Saved from forward to backward

struct AttentionActivations {
    TensorView qkv;     ///< [T, QD + 2 GD] after norm and rope
    TensorView qk_raw;  ///< [T, QD + GD] before the q/k norm; only with qk_norm
    TensorView o;       ///< [T, QD] input of o_proj, R writable columns behind it for its S
    TensorView lse;     ///< [T, heads] fp32, log-sum-exp
    TensorView s_qkv;   ///< [T, linears R]
};

struct DenseActivations {
    TensorView gate_up;    ///< [T, 2 F]
    TensorView s_gate_up;  ///< [T, linears R]
    TensorView s_down;     ///< [T, R]
};

struct ExpertActivations {
    TensorView gate_up;      ///< [T k, 2 F], in the order of experts
    TensorView s_gate_up;    ///< [T k, 2 R], only with Plan::expert_lora
    void* routes = nullptr;  ///< as routes_layout() says
};

/// Of a layer, for a microbatch of T rows. A layer fills what its kinds have; the rest is empty.
struct LayerActivations {
    TensorView x;           ///< [T, H] input of the layer, which a boundary holds
    TensorView mixer_made;  ///< [T, H] before its norm; as mlp_made only with norms after
    TensorView x2;          ///< [T, H] behind the mixer
    TensorView mlp_made;
    AttentionActivations attention;
    DenseActivations dense;
    ExpertActivations experts;
};

/// One of them.
struct SavedArray {
    TensorView* view = nullptr;  ///< null: bytes that no matrix describes, at `*bytes_at`
    void** bytes_at = nullptr;
    std::uint64_t offset = 0;
    DType dtype = DType::f32;
    std::int64_t columns = 0;
    std::int64_t pad = 0;     ///< columns behind
    std::int64_t rows = 1;    ///< for each of the layer's
    std::uint64_t fixed = 0;  ///< bytes, whatever rows there are

    std::uint64_t bytes_of(std::int64_t tokens) const;
};

/// Those of a layer, one behind another.
class SavedArrays {
  public:
    explicit SavedArrays(const ReplicaView& view);

    struct Size {
        std::int64_t columns = 0;
        std::int64_t pad = 0;
        std::int64_t rows = 1;
    };
    void add(TensorView& view, const Size& size) { add(view, size, compute_); }
    void add(TensorView& view, const Size& size, DType dtype);
    void add_bytes(void*& at, std::uint64_t bytes);

    /// Says where they are of `tokens` rows, where the layer's memory begins at `start`.
    void place(char* start, std::int64_t tokens) const;
    std::uint64_t bytes() const { return bytes_; }
    const SavedArray* begin() const { return arrays_.begin(); }
    const SavedArray* end() const { return arrays_.end(); }

  private:
    std::int64_t tokens_;
    DType compute_;
    std::uint64_t bytes_ = 0;
    Few<SavedArray, 24> arrays_;
};

/// What backward needs of a layer, beside x: members of `saved`.
SavedArrays saved_arrays(const ReplicaView& view, const LayerSpec& layer, LayerActivations& saved);

// ---- Scratch that kinds alone compute with; all layers of a stage share it

struct ScratchMatrix {
    const char* name = nullptr;
    std::int64_t rows = 0;  ///< at most
    std::int64_t columns = 0;
    DType dtype = DType::f32;
    void* data = nullptr;

    std::uint64_t bytes() const { return aligned_array(rows * columns, size_of(dtype)); }
};

struct ExpertScratch {
    ScratchMatrix router;    ///< logits, or their gradient [T, E]
    ScratchMatrix rows;      ///< in the order of experts [T k, H]
    ScratchMatrix product;   ///< [T k, F]
    ScratchMatrix inner;     ///< the same; only without joins_experts()
    ScratchMatrix gradient;  ///< [T k, 2 F]
    ScratchMatrix weights;   ///< gradient of the router's weights [T k, 1] fp32
    ScratchMatrix s_down;    ///< [T k, R]; as ds only with Plan::expert_lora
    ScratchMatrix ds;        ///< of gate and up, or of down in the first half [T k, 2 R]
};

struct KindScratch {
    ExpertScratch experts;
};

using ScratchMatrices = Few<ScratchMatrix*, 24>;
/// What the layers need: members of `scratch`.
ScratchMatrices kind_scratch(const ReplicaView& view, KindScratch& scratch);

// ---- Frozen

/// Of a layer beside the linears of its groups: layer_tensors.h's, biases, experts. These do not
/// stream.
std::uint64_t held_bytes(const ReplicaView& view, const LayerSpec& layer);

/// Elements of the largest frozen matrix outside the groups: a linear of all experts.
std::int64_t largest_product(const LayerSpec& layer, std::int64_t hidden_size);
/// Columns that the widest GEMM outside the groups reads and makes.
std::int64_t widest_product(const ReplicaView& view, const LayerSpec& layer);

}  // namespace loratrain
