#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "base/tensor.h"
#include "plan/memory/memory_model.h"

namespace loratrain {

/// Arrays that each kind of mixer and of MLP saves, holds frozen, and uses as scratch. Each kind
/// has structs here; functions in kind_memory.cpp say which of their arrays a layer has, and how
/// large they are. The memory model counts these bytes; ActivationSlot and Workspace allocate the
/// same arrays. T = microbatch_tokens, H = hidden_size, R = saved_columns.

/// A list of at most `most` items, without allocation.
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
    // Only with output_gate:
    TensorView gates;  ///< [T, QD]
    TensorView seen;   ///< [T, QD] what attention made; o is that times the gates' sigmoids
    // Only with a latent, where o is not the input of o_proj:
    TensorView latent;   ///< [T, outputs of q_a and kv_a]
    TensorView s_heads;  ///< [T, 2 R] of q_b and kv_b
    TensorView s_o;      ///< [T, R]
};

struct DeltaNetActivations {
    TensorView made;   ///< [T, C + HvDv + 2 Hv] of the linears: q, k, v (C columns), z, b and a
    TensorView o;      ///< [T, HvDv] of the delta rule
    TensorView s_in;   ///< [T, linears R]
    TensorView s_out;  ///< [T, R]
};

struct DenseActivations {
    TensorView gate_up;    ///< [T, 2 F]
    TensorView s_gate_up;  ///< [T, linears R]
    TensorView s_down;     ///< [T, R]
};

struct ExpertActivations {
    TensorView gate_up;      ///< [T k, 2 F], in the order of experts
    TensorView s_gate_up;    ///< [T k, 2 R], only with Plan::expert_lora
    TensorView s_down;       ///< [T k, R], likewise
    void* routes = nullptr;  ///< as routes_layout() says
    DenseActivations shared;
    void* shared_routes = nullptr;  ///< as shared_routes_layout() says; only with shared_gate
};

/// What a layer saves of a microbatch of T rows. Arrays that its kinds do not have stay empty.
struct LayerActivations {
    TensorView x;  ///< [T, H] input of the layer, which a boundary holds
    TensorView
        mixer_made;       ///< [T, H] the mixer's output, with a norm after it or Plan::dora_outputs
    TensorView x2;        ///< [T, H] the residual stream behind the mixer
    TensorView mlp_made;  ///< [T, H] the MLP's output, likewise
    AttentionActivations attention;
    DeltaNetActivations delta_net;
    DenseActivations dense;
    ExpertActivations experts;
};

/// What a layer keeps of texts that are being generated (model/text_cache.h), in TextRoom: keys and
/// values of all tokens, or for each text a state and rows of the convolution's input.
struct LayerCache {
    TensorView keys;            ///< [tokens, GD]
    TensorView values;          ///< [tokens, GD]
    void* states = nullptr;     ///< [texts, Hv, Dk, Dv] fp32, DeltaRule's
    void* conv_rows = nullptr;  ///< [texts (K - 1), C], CachedConv's
};

/// An array of LayerActivations or LayerCache: a matrix, or a number of bytes.
struct SavedArray {
    TensorView* view = nullptr;  ///< the matrix; null for bytes
    void** bytes_at = nullptr;   ///< pointer to the bytes; null for a matrix
    std::uint64_t offset = 0;    ///< bytes from the start of the layer's memory
    DType dtype = DType::f32;    ///< of the matrix, as columns, pad and rows
    std::int64_t columns = 0;
    std::int64_t pad = 0;     ///< writable columns behind `columns`
    std::int64_t rows = 1;    ///< per token
    std::uint64_t fixed = 0;  ///< number of bytes, for any number of tokens; 0 for a matrix

    std::uint64_t bytes_of(std::int64_t tokens) const;
};

/// The saved arrays of a layer, one behind another in its memory.
class SavedArrays {
  public:
    /// The largest number of tokens, and the type of matrices that are added without one.
    SavedArrays(std::int64_t tokens, DType compute) : tokens_(tokens), compute_(compute) {}

    struct Size {
        std::int64_t columns = 0;
        std::int64_t pad = 0;
        std::int64_t rows = 1;
    };
    void add(TensorView& view, const Size& size) { add(view, size, compute_); }
    void add(TensorView& view, const Size& size, DType dtype);
    void add_bytes(void*& at, std::uint64_t bytes);

    /// Points the arrays into the layer's memory, which begins at `start`, for `tokens` tokens.
    void place(char* start, std::int64_t tokens) const;
    /// Of all arrays, with alignment, for the largest number of tokens.
    std::uint64_t bytes() const { return bytes_; }
    const SavedArray* begin() const { return arrays_.begin(); }
    const SavedArray* end() const { return arrays_.end(); }

  private:
    std::int64_t tokens_;
    DType compute_;
    std::uint64_t bytes_ = 0;
    Few<SavedArray, 24> arrays_;
};

/// The members of `saved` that the backward pass of `layer` needs, except x.
SavedArrays saved_arrays(const ReplicaView& view, const LayerSpec& layer, LayerActivations& saved);
/// The members of `cache` that generation needs of `layer`.
SavedArrays cached_arrays(const TextRoom& room, const ReplicaView& view, const LayerSpec& layer,
                          LayerCache& cache);

// ---- Scratch of kinds; all layers of a stage share it

struct ScratchMatrix {
    const char* name = nullptr;
    std::int64_t rows = 0;  ///< of the largest microbatch
    std::int64_t columns = 0;
    DType dtype = DType::f32;
    void* data = nullptr;

    std::uint64_t bytes() const { return aligned_array(rows * columns, size_of(dtype)); }
};

struct ExpertScratch {
    ScratchMatrix logits;          ///< of the router [T, E] fp32
    ScratchMatrix d_logits;        ///< their gradient [T, E]
    ScratchMatrix rows;            ///< in the order of experts [T k, H]
    ScratchMatrix product;         ///< [T k, F]
    ScratchMatrix inner;           ///< the same; only without joins_experts()
    ScratchMatrix gradient;        ///< [T k, 2 F]
    ScratchMatrix weights;         ///< gradient of the router's weights [T k, 1] fp32
    ScratchMatrix codes;           ///< [T k, max(H, 2 F)] bytes, four of them in an fp32; only with
    ScratchMatrix code_scales;     ///< Plan::fp8_linears, as their scales [T k, 1] fp32
    ScratchMatrix ds;              ///< of gate and up, or of down in the first half [T k, 2 R];
                                   ///< only with Plan::expert_lora
    ScratchMatrix shared_product;  ///< [T, Fs + R] of the shared expert, as the others below
    ScratchMatrix shared_inner;    ///< [T, Fs], its gradient
    ScratchMatrix shared_out;      ///< [T, H], and
    ScratchMatrix shared_d_out;    ///< its gradient [T, H + R]; both only with shared_gate
};

struct AttentionScratch {
    /// Queries and gates, or gradients of gates and of `seen` [T, 2 QD]; only with output_gate.
    ScratchMatrix gated;
    /// Sums over rows of q and k, and of their gradients [2 T, 2] fp32; only with qk_norm_whole on
    /// several lanes.
    ScratchMatrix norm_sums;
    // Only with a latent:
    ScratchMatrix heads;     ///< outputs of kv_b, or gradients of o, k and v [T, 3 QD]
    ScratchMatrix d_latent;  ///< gradients of the outputs of q or q_a and of kv_a [T, their sum +
                             ///< linears R]
};

struct DeltaNetScratch {
    ScratchMatrix mixed;    ///< q, k, v behind the convolution [T, C]
    ScratchMatrix d_mixed;  ///< their gradients
    ScratchMatrix gates;    ///< g, beta, and their gradients, one behind another [4 T, Hv] fp32
    ScratchMatrix states;   ///< [delta_states(T), Hv Dk Dv] fp32
    ScratchMatrix ordered;  ///< the linears' outputs, or gradient of `made`; only by_key_head
};

struct KindScratch {
    ExpertScratch experts;
    AttentionScratch attention;
    DeltaNetScratch delta_net;
};

using ScratchMatrices = Few<ScratchMatrix*, 24>;
/// The members of `scratch` that the replica's layers need, each of the largest size needed.
ScratchMatrices kind_scratch(const ReplicaView& view, KindScratch& scratch);

// ---- Frozen

/// Bytes of a layer's frozen weights outside the linears of its groups: tensors of layer_tensors.h,
/// biases and experts. Streaming leaves them in backend memory.
std::uint64_t held_bytes(const ReplicaView& view, const LayerSpec& layer);

/// Elements of the layer's largest frozen matrix outside the groups: one linear of all experts
/// together. 0 without experts.
std::int64_t largest_product(const LayerSpec& layer, std::int64_t hidden_size);
/// Columns that the widest GEMM outside the groups reads and writes, added up. 0 without experts.
std::int64_t widest_product(const ReplicaView& view, const LayerSpec& layer);

}  // namespace loratrain
