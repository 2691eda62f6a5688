#pragma once

#include <memory>
#include <vector>

#include "backend/backend.h"
#include "model/scratch.h"
#include "model/weight_view.h"
#include "plan/memory/kind_memory.h"

namespace loratrain {

/// Scratch of a stage, shared by all its layers and microbatches (memory_model.h names the parts).
/// What returns Scratch is leased.
class Workspace {
  public:
    Workspace(const ReplicaView& view, const StagePlan& stage, Backend& backend);

    /// [tokens, columns], with `pad` columns behind in each row.
    Scratch input(std::int64_t tokens, std::int64_t columns, std::int64_t pad = 0) const;
    Scratch gradient(std::int64_t tokens, std::int64_t columns, std::int64_t pad = 0) const;
    Scratch inner(std::int64_t tokens, std::int64_t columns) const;
    /// Gradient of what a branch made before its norm [tokens, H], rows of H + R columns.
    Scratch branch(std::int64_t tokens) const;
    /// Running gradient of the residual stream [tokens, H], rows of H + R columns.
    Scratch residual(std::int64_t tokens) const;
    /// gemm_matrix() of weights, leased where they are staged.
    Scratch matrix_of(const WeightView& weights, const MatrixShape& shape) const;
    /// All that there is for staged weights, as one row.
    Scratch staged() const;
    /// What kinds of sublayers alone use, and `columns` of it from `first` on.
    const KindScratch& kinds() const { return kinds_; }
    Scratch lease(const ScratchMatrix& of, std::int64_t rows, std::int64_t first,
                  std::int64_t columns) const;

    /// Activations of one layer (LayerActivations); null unless the plan recomputes them. The same
    /// for each buffer of layers whose activations go to the host (offload.h). ActivationSlot says
    /// whose they are.
    void* layer() const { return layer_.data(); }
    void* offload(std::int32_t buffer) const;
    /// Codes of a linear's input, or of its output's gradient, from the op that writes that to the
    /// product (Operand); only with Plan::fp8_linears.
    Fp8Rows codes(std::int64_t tokens, std::int64_t columns) const {
        return {codes_.as<std::uint8_t>(), code_scales_.as<float>(), tokens, columns, columns};
    }
    // The head's own.
    void* logits() const { return logits_.data(); }
    /// ShardStatistics of a chunk's rows on every lane; null with one lane.
    void* statistics() const { return statistics_.data(); }
    /// part 0, 1, 2: three [chunk rows, H] matrices.
    TensorView head_rows(int part, std::int64_t rows) const;

  private:
    struct Part {
        Buffer buffer;
        const char* name = nullptr;
    };
    Scratch lease(const Part& part, std::int64_t rows, std::int64_t columns,
                  std::int64_t pad = 0) const;

    ReplicaView view_;
    Backend& backend_;
    DType dtype_;
    std::unique_ptr<LeasedBytes> leased_;  ///< null: leases are not checked
    Part input_;
    Part gradient_;
    Part residual_;
    Part inner_;
    Part branch_;
    Part staged_;
    KindScratch kinds_;
    std::vector<Buffer> of_kinds_;
    Buffer layer_;
    Buffer offload_;
    Buffer codes_;
    Buffer code_scales_;
    Buffer logits_;
    Buffer head_rows_;
    Buffer statistics_;
};

}  // namespace loratrain
