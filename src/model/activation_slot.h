#pragma once

#include <cstdint>

#include "backend/backend.h"
#include "model/microbatch_tables.h"
#include "model/workspace.h"
#include "plan/memory/memory_model.h"
#include "plan/memory/offload.h"

namespace loratrain {

/// Saved tensors of one decoder layer for a microbatch of `tokens` rows (LayerSlotLayout).
struct LayerActivations {
    TensorView x;       ///< [T, H] input of the layer
    TensorView qkv;     ///< [T, QD + 2 GD] after norm and RoPE
    TensorView qk_raw;  ///< [T, QD + GD] before the q/k norm; only with qk_norm
    TensorView o;       ///< [T, QD] attention output, saved_columns writable columns behind it
    float* lse = nullptr;
    TensorView attention_made;  ///< [T, H] before its norm; as mlp_made only with norms after
    TensorView x2;              ///< [T, H] after the attention block
    TensorView mlp_made;
    TensorView gate_up;  ///< [T, 2F]; with experts [T k, 2F]
    ExpertRoutes routes{};
    TensorView s_qkv;  ///< [T, R] for each linear of the group, as s_gate_up
    TensorView s_gate_up;
    TensorView s_down;
};

/// Everything one in-flight microbatch keeps on a stage from forward to backward. Allocated once;
/// slots are reused in microbatch order.
class ActivationSlot {
  public:
    ActivationSlot(const ReplicaView& view, const StagePlan& stage, const Workspace& workspace,
                   Backend& backend);

    MicrobatchTables& tables() { return tables_; }
    const MicrobatchTables& tables() const { return tables_; }
    /// Of the rows that the layer computes; of a layer that is recomputed all but `x` is
    /// Workspace::layer, the same for all of them and of all slots, and of one whose activations
    /// go to the host a buffer of Workspace::offload, of all slots too.
    LayerActivations layer(std::int32_t local) const;
    /// Boundary 0 = the stage's input, boundary layer_count = its output. [T, H], contiguous.
    TensorView boundary(std::int32_t i, std::int64_t tokens) const;
    /// Gradient of the last stage's output. [T, H]
    TensorView loss_gradient(std::int64_t tokens) const;

  private:
    TensorView view(std::uint64_t offset, std::int64_t tokens, std::int64_t columns,
                    std::int64_t ld) const;
    /// Behind so many kept layers.
    std::uint64_t layer_offset(std::int32_t kept) const;
    char* start_of(const LayerKeeping& keeping) const;
    ExpertRoutes routes(char* start, std::int64_t tokens) const;

    ReplicaView view_;
    DType dtype_;
    std::int32_t layer_count_;
    std::int32_t kept_layers_;
    std::int32_t offloaded_layers_;
    std::int32_t offload_buffers_;
    std::vector<LayerKeeping> keeping_;
    const Workspace& workspace_;
    LayerSlotLayout layout_;
    Buffer memory_;
    MicrobatchTables tables_;
};

}  // namespace loratrain
