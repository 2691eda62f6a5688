#pragma once

#include "model/layers/attention_parts.h"
#include "model/layers/branch.h"

namespace loratrain {

/// Attention within each sample (Vaswani et al. 2017), as the Llama family has it:
///   made = o_proj(attention(rope(norm(q_proj h)), rope(norm(k_proj h)), v_proj h))
/// with norms of q and k, rope, output gates and a sliding window where the layer's AttentionSpec
/// has them. A lane has its heads.
class AttentionSublayer final : public Sublayer {
  public:
    explicit AttentionSublayer(const LayerTools& tools) : tools_(tools) {}
    void forward(const LayerSite& at, const Branch& branch) override;
    void backward(const LayerSite& at, const Branch& branch, bool need_dx) override;

  private:
    static TensorView queries_and_keys(const LayerSite& at, const TensorView& qkv);
    /// q, or k, before their norms.
    static TensorView raw(const LayerSite& at, int i);
    /// Fills the input of o.
    void attend(const LayerSite& at) const;
    void project_qkv(const LayerSite& at, const Branch& branch) const;
    /// The same with output gates: q's linear writes to scratch, from where queries and gates go
    /// apart.
    void project_gated(const LayerSite& at, const Branch& branch) const;
    Scratch lease_gated(const LayerSite& at) const;
    /// From d_o, the gradient of what output gates let through, to the gradient of what attention
    /// made, in half of the scratch `gated`, and to the gates' columns of d_qkv.
    TensorView gate_backward(const LayerSite& at, const TensorView& d_o, const TensorView& gated,
                             const TensorView& d_qkv) const;
    static std::int64_t norm_groups(const LayerSite& at, const TensorView& q_or_k);
    static const Buffer& norm_weight(const LayerSite& at, int i);
    /// Of q, or k.
    void head_norm(const LayerSite& at, int i, const TensorView& y) const;
    void head_norm_backward(const LayerSite& at, int i, const TensorView& dy) const;
    void head_norms(const LayerSite& at, const AttentionHeads& heads) const;
    void head_norms_backward(const LayerSite& at, const AttentionHeads& grads) const;
    /// Norms over the heads of all lanes: q and k together take one sum over the lanes.
    bool sums_norms(const LayerSite& at) const;
    void lane_norms(const LayerSite& at, const AttentionHeads& heads) const;
    void lane_norms_backward(const LayerSite& at, const AttentionHeads& grads) const;
    LaneNorm lane_norm(const LayerSite& at, int i, const TensorView& squares,
                       const TensorView& y) const;
    /// [sums T, 2], of q and of k.
    Scratch lease_sums(const LayerSite& at, std::int64_t sums) const;
    /// Branch::OutputOf of q, k, v as projected.
    TensorView projected(const LayerSite& at, int i, const TensorView& spare) const;
    /// From the branch's gradient to that of what attention made, and the gradients of o's LoRA.
    Scratch o_backward(const LayerSite& at, const Branch& branch) const;

    const LayerTools& tools_;
};

}  // namespace loratrain
