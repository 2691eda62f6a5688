#pragma once

#include "backend/rank_group.h"
#include "model/activation_slot.h"
#include "model/expert_mlp.h"
#include "model/key_value_cache.h"
#include "model/lora_linear.h"

namespace loratrain {

/// One decoder layer of the Llama family over packed samples:
///   x2 = x + o_proj(attention(rope(norm(q_proj h)), rope(norm(k_proj h)), v_proj h)), h = norm(x)
///   y  = x2 + down_proj(silu(gate_proj h2) * up_proj h2),                            h2 = norm(x2)
/// with an ExpertMlp in place of the latter where ModelSpec has experts,
/// without rope where LayerSpec has none, attention in its sliding window; x is the residual stream
/// of ModelSpec::stream_eps(). With NormPlacement::after h = x, h2 = x2, and what is added to x and
/// x2 is normed first; with both h and h2 are normed too. Other activations and q and k norms as
/// ModelSpec has them. Backward recomputes the SwiGLU product elementwise (design.md "Saved
/// activations"), takes x and x2 for h and h2, and with Recompute::layer recomputes
/// everything else but x: Chen et al. 2016, "Training Deep Nets with Sublinear Memory Cost".
///
/// A lane of a tensor-parallel stage has its heads and its columns of the MLP. x, x2, y and their
/// gradients are whole on every lane, equal to the bit: o and down add up over the lanes, on top of
/// the residual stream, and so do the gradients of h and h2 (Shoeybi et al. 2019, "Megatron-LM").
/// LoRA adds no sum: its products are linear parts of these.
class DecoderLayer {
  public:
    DecoderLayer(const ReplicaView& view, const AdapterBank& bank, const Workspace& workspace,
                 const RotaryTables& rotary, Backend& backend, const StageLanes& lanes);

    /// LoraLinear::pack_all of layers, each with the rows that it is about to compute.
    struct Computed {
        std::int32_t layer;
        LayerWeights& weights;
        const LayerRows& rows;
    };
    void pack(std::span<const Computed> layers);

    /// Until it is called again, forward() attends through `cache` (null: not).
    void use_cache(KeyValueCache* cache, KeyValueCache::Rows rows) {
        cache_ = cache;
        cached_rows_ = rows;
    }

    /// y: [T, H], the next layer's input, T = rows.tokens. `layer` counts from the stage's first.
    void forward(std::int32_t layer, LayerWeights& weights, const LayerRows& rows,
                 const LayerActivations& saved, const TensorView& y);

    /// Fills `saved` from saved.x again, to the bit as forward did, without making y.
    void recompute(std::int32_t layer, LayerWeights& weights, const LayerRows& rows,
                   const LayerActivations& saved);

    /// Turns the running gradient (Workspace::residual) from that of y into that of x;
    /// without `need_dx` only the adapter gradients of the attention inputs are made, and it is
    /// lost.
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
    /// The columns of each linear of the group.
    std::array<TensorView, 3> by_linear(const LinearGroupShape& group, const TensorView& y) const;
    /// And of its S.
    std::array<TensorView, 3> columns_of(const LoraLinear::Site& at, const TensorView& s) const;
    LoraLinear::Site site(std::int32_t layer, LayerWeights& weights, LinearGroup group,
                          const LayerRows& rows) const;
    Attention attention_op(const LayerSpec& spec, const LayerActivations& saved,
                           const LayerRows& rows) const;
    void attend(std::int32_t layer, const Attention& op);
    float norm_offset() const { return view_.lane_model.norm_plus_one ? 1.0F : 0.0F; }
    /// y = the norm of x, or x where there is no norm (and no codes).
    void make_input(const TensorView& x, const Buffer& weight, const TensorView& y,
                    const RowCodes& codes = {});
    /// Whether make_input makes codes.
    LoraLinear::Codes codes_of_input() const {
        return view_.lane_model.has_norms_before() ? LoraLinear::Codes::made
                                                   : LoraLinear::Codes::to_make;
    }
    /// As RmsNormBackward has them.
    void norm_backward(const TensorView& x, const Buffer& weight, const TensorView& dy,
                       const TensorView& dx, bool accumulate, const TensorView& scaled);
    /// A group whose input make_input makes of x: the gradient of its output, and the running one.
    struct Normed {
        const TensorView& x;
        const Buffer& weight;
        const TensorView& dy;
        const TensorView& dx;
    };
    /// From dy to dx, and the gradients of A from x, for which dS behind dy is lost; without
    /// need_dx dx is lost too: the norm's backward runs for dS alone, so that no adapter notices
    /// whether another one's embedding needs dx.
    void backward_to_norm(const LoraLinear::Site& at, const Normed& of, LoraLinear::Codes codes,
                          bool need_dx);
    /// Gradient of what a branch made before its norm, `weight`, and was added; dx where it has
    /// none.
    TensorView before_norm(const TensorView& made, const Buffer& weight, const TensorView& dx);
    std::int64_t norm_groups(const TensorView& q_or_k) const;
    TensorView normed_input(std::int64_t tokens) const;
    /// The same for the forward of a group, with the columns behind it that this has.
    TensorView group_input(LinearGroup group, std::int64_t tokens) const;
    void head_norm(const TensorView& x, const Buffer& weight, const TensorView& y);
    void head_norm_backward(const TensorView& x, const Buffer& weight, const TensorView& dy);
    /// Of q and k, or one of them, rotated in place; the first `queries` columns are q's.
    void rope(const TensorView& x, const LayerSpec& spec, const LayerRows& rows, bool backward,
              std::int64_t queries);
    void project_qkv(const LoraLinear::Site& at, LayerWeights& weights,
                     const LayerActivations& saved);
    /// Where what a group makes goes: sum = residual + made, or its norm, which `made` is kept for.
    struct Branch {
        TensorView residual;
        TensorView sum;
        TensorView made;       ///< only with a norm
        const Buffer& weight;  ///< of that
    };
    /// The group is cut by columns; over all lanes.
    void add_over_lanes(const LoraLinear::Site& at, const TensorView& x, const Branch& branch,
                        const TensorView& s, LoraLinear::Codes codes,
                        LoraLinear::Sums sums = LoraLinear::Sums::to_make);
    /// What the linears before down made, through the activation; and back, with `product` made
    /// again.
    void activate(const LayerWeights& weights, const TensorView& made, const TensorView& product);
    void activate_backward(const LayerWeights& weights, const TensorView& made,
                           const TensorView& d_product, const TensorView& d_made,
                           const TensorView& product, const RowCodes& codes);
    /// Of an MLP with a gate.
    SwiGlu swiglu_op(const TensorView& made, const TensorView& product) const;
    SwiGluBackward swiglu_backward_op(const TensorView& made, const TensorView& d_product,
                                      const TensorView& d_made, const TensorView& product,
                                      const RowCodes& codes) const;
    /// Everything up to x2.
    void attention_block(std::int32_t layer, LayerWeights& weights, const LayerRows& rows,
                         const LayerActivations& saved);
    /// down's input, in scratch (Workspace::input), and where its S goes.
    struct Product {
        TensorView h;
        TensorView s;
        LoraLinear::Sums sums;
    };
    /// What the MLP's first linears make, and it activated.
    Product gated_product(std::int32_t layer, LayerWeights& weights, const LayerRows& rows,
                          const LayerActivations& saved);
    /// The same with experts.
    void make_expert_rows(const ExpertMlp::Site& at, const LayerWeights& weights,
                          const LayerActivations& saved);
    void experts_backward(const ExpertMlp::Site& at, const LayerWeights& weights,
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
    RotaryTables rotary_;
    Backend& backend_;
    StageLanes lanes_;
    LoraLinear linear_;
    ExpertMlp experts_;
    std::vector<LoraLinear::Site> packed_;
    KeyValueCache* cache_ = nullptr;
    KeyValueCache::Rows cached_rows_{};
};

}  // namespace loratrain
