#pragma once

#include <functional>

#include "model/layers/sublayer.h"

namespace loratrain {

/// The residual stream around a sublayer, and the norms on the way:
///   sum = x + made,  made = sublayer(h),  h = norm(x)
/// With NormPlacement::after h = x and sum = x + norm(made); with both, both norms. x is the
/// residual stream of ModelSpec::stream_eps().
///
/// On a lane of a tensor-parallel stage x, sum and their gradients are whole, equal to the bit: the
/// sublayer's last linears add up over the lanes, on top of the residual stream, and so do the
/// gradients of h (Shoeybi et al. 2019, "Megatron-LM"). LoRA adds no sum: its products are linear
/// parts of these.
class Branch {
  public:
    struct Stream {
        TensorView x;     ///< [T, H]
        TensorView sum;   ///< [T, H], without data where nobody reads it
        TensorView made;  ///< [T, H], only with norms after
        const Buffer& norm_before;
        const Buffer& norm_after;
    };
    /// `gradient`, in backward: the running one, that of sum, from which that of x is made [T, H].
    Branch(const LayerTools& tools, const Stream& stream, const TensorView& gradient)
        : tools_(tools), stream_(stream), gradient_(gradient) {}

    const TensorView& x() const { return stream_.x; }
    const TensorView& sum() const { return stream_.sum; }
    bool has_sum() const { return stream_.sum.data != nullptr; }

    /// h in scratch (Workspace::input), with R columns behind it.
    Scratch make_input() const;
    /// y = the outputs of a group's linears of h, side by side, and their S; h is in scratch.
    void project(const GroupSite& at, const PerLinear& y, const TensorView& s) const;
    /// Applies the sublayer's last linear, which lanes cut by columns, to `of`: fills its S, adds
    /// the output to the residual stream, sums over all lanes.
    void add(const GroupSite& at, const GroupInput& of) const;

    const TensorView& gradient() const { return gradient_; }
    /// That of `made`: the running one, or with a norm after in scratch (Workspace::branch).
    Scratch gradient_of_made() const;
    /// Output i of a group's linears, where it was kept or can be had from what was, which may be
    /// written to `spare` [T, N or more]; else empty.
    using OutputOf = std::function<TensorView(int i, const TensorView& spare)>;
    /// The rest of the backward of project(), behind LoraLinear::backward_b: from dy to the running
    /// gradient, and the gradients of A and of what forms have beside A and B. dS behind dy is
    /// lost. Without need_dx the running gradient is lost too. The norm's backward runs all the
    /// same, because it scales dS: gradients of adapters have the same bits either way.
    void project_backward(const GroupSite& at, const Operand& dy, const TensorView& s,
                          const OutputOf& output_of, bool need_dx) const;
    /// gradient() += that of x, from dh.
    void input_backward(const TensorView& dh) const;

  private:
    /// y = h, and its codes where a norm makes it.
    Operand make_input(const TensorView& y, const RowCodes& codes) const;
    /// `scaled`: as RmsNormBackward has it.
    void norm_backward(const TensorView& dh, bool accumulate, const TensorView& scaled) const;

    const LayerTools& tools_;
    Stream stream_;
    TensorView gradient_;
};

}  // namespace loratrain
