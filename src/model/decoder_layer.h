#pragma once

#include "backend/rank_group.h"
#include "model/activation_slot.h"
#include "model/lora_linear.h"

namespace loratrain {

/// One decoder layer of the Llama family over packed samples:
///   x2 = x + o_proj(attention(rope(norm(q_proj h)), rope(norm(k_proj h)), v_proj h)), h = norm(x)
///   y  = x2 + down_proj(silu(gate_proj h2) * up_proj h2),                            h2 = norm(x2)
/// without rope where LayerSpec has none, attention in its window; x is the residual stream of
/// ModelSpec::stream_eps(). Backward recomputes h, h2 and the SwiGLU product elementwise (design
/// decision 5), and with Recompute::layer everything else but x: Chen et al. 2016, "Training Deep
/// Nets with Sublinear Memory Cost".
///
/// A lane of a tensor-parallel stage has its heads and its columns of the MLP. x, x2, y and their
/// gradients are whole on every lane, equal to the bit: o and down add up over the lanes, on top of
/// the residual stream, and so do the gradients of h and h2 (Shoeybi et al. 2019, "Megatron-LM").
/// LoRA adds no sum: its products are linear parts of these.
class DecoderLayer {
  public:
    DecoderLayer(const ReplicaView& view, const AdapterBank& bank, const Workspace& workspace,
                 const float* inv_freq, Backend& backend, const StageLanes& lanes);

    /// LoraLinear::pack_all of layers, each with the rows that it is about to compute.
    struct Computed {
        std::int32_t layer;
        LayerWeights& weights;
        const LayerRows& rows;
    };
    void pack(std::span<const Computed> layers);

    /// y: [T, H], the next layer's input, T = rows.tokens. `layer` counts from the stage's first.
    void forward(std::int32_t layer, LayerWeights& weights, const LayerRows& rows,
                 const LayerActivations& saved, const TensorView& y);

    /// Fills `saved` from saved.x again, to the bit as forward did, without making y.
    void recompute(std::int32_t layer, LayerWeights& weights, const LayerRows& rows,
                   const LayerActivations& saved);

    /// Turns the running gradient (Workspace::residual) from that of y into that of x;
    /// without `need_dx` only the adapter gradients of the attention inputs are made.
    void backward(std::int32_t layer, LayerWeights& weights, const LayerRows& rows,
                  const LayerActivations& saved, bool need_dx);

  private:
    struct Heads {
        TensorView q;
        TensorView k;
        TensorView v;
    };
    Heads split_heads(const TensorView& qkv) const;
    TensorView queries_and_keys(const TensorView& qkv) const;
    LoraLinear::Site site(std::int32_t layer, LayerWeights& weights, LinearGroup group,
                          const LayerRows& rows) const;
    Attention attention_op(const LayerSpec& spec, const LayerActivations& saved,
                           const LayerRows& rows) const;
    void norm(const TensorView& x, const Buffer& weight, const TensorView& y,
              const RowCodes& codes = {});
    /// y: gets the norm again, where it has data.
    void norm_backward(const TensorView& x, const Buffer& weight, const TensorView& dy,
                       const TensorView& dx, const TensorView& y);
    /// A group whose input is the norm of x: the gradient of its output, and the running one.
    struct Normed {
        const TensorView& x;
        const Buffer& weight;
        const TensorView& dy;
        const TensorView& dx;
    };
    /// From dy to dx; with_a: also the gradients of A, of the input made again on the way.
    void backward_to_norm(const LoraLinear::Site& at, const Normed& of, bool with_a,
                          LoraLinear::Codes codes);
    TensorView normed_input(std::int64_t tokens) const;
    void head_norm(const TensorView& x, const Buffer& weight, const TensorView& y);
    void head_norm_backward(const TensorView& x, const Buffer& weight, const TensorView& dy);
    void rope(const TensorView& x, const LayerSpec& spec, const LayerRows& rows, bool backward);
    void project_qkv(const LoraLinear::Site& at, LayerWeights& weights,
                     const LayerActivations& saved);
    /// sum = residual + what the group, which is cut by columns, makes of x, over all lanes.
    void add_over_lanes(const LoraLinear::Site& at, const TensorView& x, const TensorView& residual,
                        const TensorView& sum, const TensorView& s, LoraLinear::Codes codes);
    /// Everything up to x2.
    void attention_block(std::int32_t layer, LayerWeights& weights, const LayerRows& rows,
                         const LayerActivations& saved);
    /// gate, up and their SwiGLU product, which is in scratch (Workspace::input).
    TensorView gated_product(std::int32_t layer, LayerWeights& weights, const LayerRows& rows,
                             const LayerActivations& saved);
    void mlp_backward(std::int32_t layer, LayerWeights& weights, const LayerRows& rows,
                      const LayerActivations& saved);
    /// Linear i of q, k, v as projected, where that was kept or can be had from it; q and k by
    /// Workspace::inner().
    TensorView projected(const LoraLinear::Site& qkv, int i, const LayerSpec& spec,
                         const LayerActivations& saved);
    void attention_block_backward(std::int32_t layer, LayerWeights& weights, const LayerRows& rows,
                                  const LayerActivations& saved, bool need_dx);

    ReplicaView view_;
    const Workspace& workspace_;
    const float* inv_freq_;
    Backend& backend_;
    StageLanes lanes_;
    LoraLinear linear_;
    std::vector<LoraLinear::Site> packed_;
};

}  // namespace loratrain
