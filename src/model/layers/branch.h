#pragma once

#include <functional>

#include "model/layers/sublayer.h"

namespace loratrain {

/// Residual stream around a sublayer, with its norms:
///   sum = x + made,  made = sublayer(h),  h = norm(x)
/// With NormPlacement::after, h = x and sum = x + norm(made). With both placements, both norms
/// apply. The norm of x has ModelSpec::stream_eps().
///
/// On a lane of a tensor-parallel stage x, sum and their gradients are whole and equal bit for bit.
/// The output of the sublayer's last linears is all-reduced over the lanes and added to the
/// residual stream; the gradient of h is all-reduced too (Shoeybi et al. 2019, "Megatron-LM"). LoRA
/// needs no further all-reduce: its products are linear parts of these sums.
class Branch {
  public:
    struct Stream {
        TensorView x;     ///< [T, H]
        TensorView sum;   ///< [T, H]; without data if the sum is not needed
        TensorView made;  ///< [T, H], only with norms after or Plan::dora_outputs
        const Buffer& norm_before;
        const Buffer& norm_after;
    };
    /// `gradient` [T, H], in backward: the running gradient. It is the gradient of sum and becomes
    /// the gradient of x.
    Branch(const LayerTools& tools, const Stream& stream, const TensorView& gradient)
        : tools_(tools), stream_(stream), gradient_(gradient) {}

    const TensorView& x() const { return stream_.x; }
    const TensorView& sum() const { return stream_.sum; }
    bool has_sum() const { return stream_.sum.data != nullptr; }

    /// Makes h in scratch (Workspace::input), with `blocks` times R columns behind it.
    Scratch make_input(std::int64_t blocks = 1) const;
    /// Applies a group's linears to h, which is in scratch: fills y with their outputs, side by
    /// side, and s with their S.
    void project(const GroupSite& at, const PerLinear& y, const TensorView& s) const;
    /// Applies the sublayer's last linear, which lanes cut by columns, to `of`: fills its S, adds
    /// its output to the residual stream and all-reduces the result over the lanes.
    void add(const GroupSite& at, const GroupInput& of) const;

    /// What a sublayer that adds to sum() itself adds to: x, or on other lanes than the first zeros
    /// in sum().
    TensorView begin_sum() const;
    /// All-reduces what the lanes have added.
    void sum_over_lanes() const;

    /// What add() has put into `made` of the sublayer's last linear, as LinearForm::Backward::y.
    TensorView kept_output(const GroupSite& at) const;

    const TensorView& gradient() const { return gradient_; }
    /// Gradient of `made`: the running gradient, or in scratch (Workspace::branch) if there is a
    /// norm after the sublayer.
    Scratch gradient_of_made() const;
    /// Output i of a group's linears, if it was kept or can be recomputed from what was kept;
    /// otherwise empty. `spare` [T, N or more] may be overwritten with it.
    using OutputOf = std::function<TensorView(int i, const TensorView& spare)>;
    /// Rest of the backward of project(), after LoraLinear::backward_b: from dy to the running
    /// gradient, the gradients of A, and the gradients of a form's other tensors. dS behind dy is
    /// lost. Without need_dx the running gradient is lost too. The norm's backward runs in either
    /// case, because it scales dS: gradients of adapters have the same bits with and without
    /// need_dx.
    void project_backward(const GroupSite& at, const Operand& dy, const TensorView& s,
                          const OutputOf& output_of, bool need_dx) const;
    /// Adds the gradient of x, computed from dh, of which a lane has its part, to gradient().
    void input_backward(const TensorView& dh) const;

  private:
    /// Makes h in y, and its codes if a norm makes h.
    Operand make_input(const TensorView& y, const RowCodes& codes) const;
    /// `scaled`: as in RmsNormBackward.
    void norm_backward(const TensorView& dh, bool accumulate, const TensorView& scaled) const;

    const LayerTools& tools_;
    Stream stream_;
    TensorView gradient_;
};

}  // namespace loratrain
