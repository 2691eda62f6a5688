#pragma once

#include "backend/backend.h"
#include "plan/memory/memory_model.h"

namespace loratrain {

/// Scratch of a stage, shared by all its layers and microbatches (memory_model.h names the parts).
class Workspace {
  public:
    Workspace(const ReplicaView& view, const StagePlan& stage, Backend& backend);

    /// [tokens, columns] with the buffer's row stride `ld`.
    TensorView input(std::int64_t tokens, std::int64_t columns, std::int64_t ld) const;
    TensorView gradient(std::int64_t tokens, std::int64_t columns, std::int64_t ld) const;
    TensorView inner(std::int64_t tokens, std::int64_t columns) const;
    /// Gradient of what a branch made before its norm [tokens, H], rows of H + R columns.
    TensorView branch(std::int64_t tokens) const;
    /// Running gradient of the residual stream [tokens, H], rows from `first` of H + R columns.
    TensorView residual(std::int64_t first, std::int64_t tokens) const;
    /// Activations of one layer (LayerSlotLayout); null unless the plan recomputes them.
    void* layer() const { return layer_.data(); }
    /// The same for each buffer of layers whose activations go to the host (offload.h).
    void* offload(std::int32_t buffer) const;
    /// With experts: logits of the router [tokens, E]; rows in their order [rows, H] and [rows, F]
    /// or [rows, 2 F]; the gradient of weights.
    TensorView router(std::int64_t tokens) const;
    TensorView expert_rows(std::int64_t rows) const;
    TensorView expert_product(std::int64_t rows) const;
    TensorView expert_inner(std::int64_t rows) const;
    TensorView expert_gradient(std::int64_t rows) const;
    /// With Plan::expert_lora: the input of gate and up [rows, H]; S and dS of either, or of
    /// down as the first [rows, R].
    TensorView expert_input(std::int64_t rows) const;
    TensorView expert_s(std::int64_t rows, int linear) const;
    TensorView expert_ds(std::int64_t rows, int linear) const;
    float* expert_weights() const { return expert_weights_.as<float>(); }
    void* staged() const { return staged_.data(); }
    /// Codes of a linear's input, or of its output's gradient; only with Plan::fp8_linears.
    Fp8Rows codes(std::int64_t tokens, std::int64_t columns) const {
        return {codes_.as<std::uint8_t>(), code_scales_.as<float>(), tokens, columns, columns};
    }
    void* logits() const { return logits_.data(); }
    /// ShardStatistics of a chunk's rows on every lane; null with one lane.
    void* statistics() const { return statistics_.data(); }
    /// part 0, 1, 2: three [chunk rows, H] matrices of the head.
    TensorView head_rows(int part, std::int64_t rows) const;

  private:
    TensorView expert_columns(const Buffer& buffer, std::int64_t rows, int linear) const;

    ReplicaView view_;
    DType dtype_;
    Buffer input_;
    Buffer gradient_;
    Buffer residual_;
    Buffer inner_;
    Buffer branch_;
    Buffer layer_;
    Buffer offload_;
    Buffer router_;
    Buffer expert_rows_;
    Buffer expert_product_;
    Buffer expert_inner_;
    Buffer expert_gradient_;
    Buffer expert_weights_;
    Buffer expert_input_;
    Buffer expert_s_;
    Buffer expert_ds_;
    Buffer staged_;
    Buffer codes_;
    Buffer code_scales_;
    Buffer logits_;
    Buffer head_rows_;
    Buffer statistics_;
};

}  // namespace loratrain
