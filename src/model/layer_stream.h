#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "backend/backend.h"
#include "backend/host_copies.h"
#include "base/pages.h"
#include "model/shared_layers.h"
#include "model/transfer_record.h"
#include "plan/memory/streamed_layers.h"

namespace loratrain {

/// Streams frozen layers from host memory, or from other ranks, into buffers of a stage.

/// Copies that move a layer between a buffer and host memory (layer_copies), or from the rank that
/// owns the layer to a buffer (owned_layer_copies).
std::vector<HostCopy> layer_copies(const StreamedLayer& layout, char* buffer, char* host);
std::vector<HostCopy> owned_layer_copies(const StreamedLayer& layout, char* buffer, char* held);

/// The streamed layers of a stage (plan/memory/streamed_layers.h). Their linears are in host memory
/// or on the ranks that own them; copies bring them to a few buffers in the order of use. Copies
/// overlap with computation.
class LayerStream {
  public:
    /// Allocates the buffers, and host memory if there are no `shared_layers`. Throws Error if
    /// memory is short.
    LayerStream(const ReplicaView& view, const StagePlan& stage, Backend& backend,
                SharedLayers* shared_layers = nullptr);

    /// Whether this rank writes the layer to the place that it streams from, by keep() or into
    /// host_layer().
    bool fills(std::int32_t layer) const;
    char* host_layer(std::int32_t layer) const;
    /// Buffer in which a layer is assembled before keep(). Valid only before the first use().
    char* assembly() const { return buffers_.front().as<char>(); }
    /// Copies assembly() to host memory as the layer's weights.
    void keep(std::int32_t layer);

    /// Waits for all copies.
    void finish() { link_->close(); }
    /// Seconds that loading a layer takes while nothing computes; the median of a few loads. Not
    /// between use() and done().
    double measured_load(StreamClock& clock);

    /// Sets the streamed layers that are used next, in order. Layers in buffers that are not needed
    /// soon give up their place.
    void expect(std::vector<std::int32_t> layers);
    struct Place {
        char* data = nullptr;  ///< the layer's buffer, until done()
        /// Copied since the layer's last use, so anything else in the buffer is lost.
        bool anew = false;
    };
    /// Makes a layer available to operations that are queued on the backend's stream until done().
    /// If it is not the expected layer, it is loaded now and the expected order is dropped.
    Place use(std::int32_t layer);
    void done();

    /// Starts to record copies to buffers.
    void start_recording() { recorded_.start(*link_); }
    std::vector<TransferRecord::Transfer> take_recorded() { return recorded_.take(); }

  private:
    void load_what_can();
    std::vector<HostCopy> copies(std::int32_t layer, char* buffer) const;

    StreamedLayer layout_;
    SharedLayers* shared_layers_;
    /// Per layer of the stage: its index among streamed layers, -1 = resident.
    std::vector<std::int32_t> place_of_;
    std::vector<HostPages> host_;  ///< by index of place_of_; empty with shared_layers
    std::vector<Buffer> buffers_;
    std::unique_ptr<HostCopies> link_;
    StreamOrder order_;
    std::vector<bool> anew_;  ///< per layer of the stage
    TransferRecord recorded_;
};

}  // namespace loratrain
