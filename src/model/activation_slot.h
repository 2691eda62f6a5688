#pragma once

#include <cstdint>

#include "backend/backend.h"
#include "model/microbatch_tables.h"
#include "model/workspace.h"
#include "plan/memory/kind_memory.h"
#include "plan/memory/offload.h"

namespace loratrain {

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

    ReplicaView view_;
    DType dtype_;
    std::int32_t first_layer_;
    std::int32_t layer_count_;
    std::int32_t kept_layers_;
    std::int32_t offloaded_layers_;
    std::int32_t offload_buffers_;
    std::vector<LayerKeeping> keeping_;
    const Workspace& workspace_;
    Buffer memory_;
    MicrobatchTables tables_;
};

}  // namespace loratrain
