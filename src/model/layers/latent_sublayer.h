#pragma once

#include "model/layers/attention_parts.h"
#include "model/layers/branch.h"

namespace loratrain {

/// Attention whose queries, keys and values are made of latent rows (LatentSpec). All heads have
/// head_dim columns: values of fewer have zeros behind them, which changes nothing else. Backward
/// makes the norms of the latent rows and the input of o again.
class LatentSublayer final : public Sublayer {
  public:
    explicit LatentSublayer(const LayerTools& tools) : tools_(tools) {}
    void forward(const LayerSite& at, const Branch& branch) override;
    void backward(const LayerSite& at, const Branch& branch, bool need_dx) override;

  private:
    /// A latent row, and the group of the linear that makes heads of it.
    struct Row {
        GroupSite group;
        TensorView x;        ///< columns of AttentionActivations::latent
        const Buffer& norm;  ///< its norm's weights
        TensorView s;
    };
    static Row queries(const LayerSite& at);
    static Row keys_and_values(const LayerSite& at);
    static bool has_queries(const LayerSite& at);
    /// S of o.
    static TensorView s_of_o(const LayerSite& at);

    Scratch lease(ScratchMatrix AttentionScratch::*of, const LayerSite& at, std::int64_t first,
                  std::int64_t columns) const;
    RmsNorm norm_op(const Row& row, const TensorView& y) const;
    /// Scratch with the norm of the row, and R columns behind it.
    Scratch normed(const Row& row) const;
    void expand(const Row& row, const TensorView& y) const;
    /// From the gradient of what expand() made, with R columns behind it, to that of the row.
    void contract(const Row& row, const TensorView& dy, const TensorView& dx) const;
    /// Fills q, k and v.
    void project(const LayerSite& at, const Branch& branch) const;
    /// Rotates the last rope_dim columns of each head.
    void rotate(const TensorView& heads, const LayerSite& at, bool backward) const;
    /// Scratch with the input of o: what attention made, without the zeros.
    Scratch made_of(const LayerSite& at) const;
    /// From the branch's gradient to that of what attention made, and the gradients of o's LoRA.
    void o_backward(const LayerSite& at, const Branch& branch, const TensorView& d_o) const;
    /// From the gradients of k and v to those of kv_a's outputs.
    void keys_backward(const LayerSite& at, const AttentionHeads& grads,
                       const TensorView& dx) const;

    const LayerTools& tools_;
};

}  // namespace loratrain
