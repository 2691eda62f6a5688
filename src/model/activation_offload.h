#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "backend/host_copies.h"
#include "base/pages.h"
#include "model/microbatch_tables.h"
#include "model/transfer_record.h"
#include "model/workspace.h"
#include "plan/memory/offload.h"

namespace loratrain {

/// Moves the activations of a stage's offloaded layers (plan/memory/offload.h) between backend
/// buffers (Workspace::offload), where the layers compute, and pinned host memory. Host memory has
/// room for the activations of every slot. Copies overlap with computation. For layers that are not
/// offloaded the calls do nothing.
class ActivationOffload {
  public:
    /// Allocates and pins the host memory; throws Error if the system refuses.
    ActivationOffload(const ReplicaView& view, std::size_t stage_index, const Workspace& workspace,
                      Backend& backend);

    /// Call before the layer's forward is queued, for the microbatch in `slot`: operations that are
    /// queued afterwards may write the layer's buffer.
    void begin_forward(std::int32_t slot, std::int32_t layer);
    /// Copies the activations of the last begin_forward() to the host. Call after a forward whose
    /// backward will follow; `rows` is the number of rows that the layer computed.
    void end_forward(std::int32_t layer, std::int64_t rows);

    /// Starts to load the activations of `slot`. Backward must follow, of all layers that have rows
    /// in `tables`, the last layer first.
    void begin_backward(std::int32_t slot, const MicrobatchTables& tables);
    /// Waits for the layer's activations: operations that are queued until done() may read its
    /// buffer.
    void use(std::int32_t layer);
    void done(std::int32_t layer);

    /// Starts to record copies to the host and back.
    void start_recording() { recorded_.start(*link_); }
    std::vector<TransferRecord::Transfer> take_recorded() { return recorded_.take(); }

  private:
    /// Slot and place of the layer whose activations a buffer holds.
    struct Content {
        std::int32_t slot = -1;
        std::int32_t place = -1;
        friend bool operator==(const Content&, const Content&) = default;
    };
    std::int32_t place_of(std::int32_t layer) const;  ///< -1 = not offloaded
    std::int32_t buffer_of(std::int32_t place) const;
    std::int32_t layer_at(std::int32_t place) const;
    std::size_t block_of(const Content& of) const;
    std::int64_t& copied_rows(const Content& of);
    std::vector<HostCopy> copies(const Content& of, std::int64_t rows) const;
    void load_what_can();

    ReplicaView view_;
    const Workspace& workspace_;
    std::int64_t first_layer_;  ///< of the stage
    std::vector<LayerKeeping> keeping_;
    std::int32_t copied_;   ///< number of places, the first ones, that are copied to the host
    std::int32_t buffers_;  ///< number of buffers; each holds one layer
    std::vector<Content> holds_;
    std::vector<std::int64_t> rows_;  ///< by slot, then place: rows that the host holds; 0 = none
    /// Places that backward has still to use, the next one last.
    std::vector<std::int32_t> to_use_;
    std::int32_t slot_ = -1;       ///< slot of to_use_
    std::vector<HostPages> host_;  ///< by slot, then place
    std::unique_ptr<HostCopies> link_;
    TransferRecord recorded_;
};

}  // namespace loratrain
