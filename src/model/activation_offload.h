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

/// The activations of a stage's offloaded layers (plan/memory/offload.h) on their way between the
/// buffers (Workspace::offload), where layers compute, and pinned host memory, which has room for
/// those of every slot. Copies run beside computation. For layers that are not offloaded the calls
/// do nothing.
class ActivationOffload {
  public:
    /// Takes and pins the host memory; throws Error where the system refuses.
    ActivationOffload(const ReplicaView& view, std::size_t stage_index, const Workspace& workspace,
                      Backend& backend);

    /// What is queued from now on writes the layer's buffer, for the microbatch in the slot.
    void begin_forward(std::int32_t slot, std::int32_t layer);
    /// After a forward whose backward is to come, of the last begin_forward(), with so many rows.
    void end_forward(std::int32_t layer, std::int64_t rows);

    /// Backward of all layers with rows follows, the last one first.
    void begin_backward(std::int32_t slot, const MicrobatchTables& tables);
    /// What is queued from now on until done() reads the layer's buffer.
    void use(std::int32_t layer);
    void done(std::int32_t layer);

    /// Records copies to the host and back from now on.
    void start_recording() { recorded_.start(*link_); }
    std::vector<TransferRecord::Transfer> take_recorded() { return recorded_.take(); }

  private:
    /// Whose activations a buffer has.
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
    std::vector<LayerKeeping> keeping_;
    std::int32_t copied_;   ///< layers, of the first places
    std::int32_t buffers_;  ///< of one layer each
    std::vector<Content> holds_;
    std::vector<std::int64_t> rows_;    ///< by slot, then place: that the host has; 0 = none
    std::vector<std::int32_t> to_use_;  ///< places that backward still uses, the next one last
    std::int32_t slot_ = -1;            ///< of these
    std::vector<HostPages> host_;       ///< by slot, then place
    std::unique_ptr<HostCopies> link_;
    TransferRecord recorded_;
};

}  // namespace loratrain
