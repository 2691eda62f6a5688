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

/// Of a layer, between a buffer and host memory, or from the rank that owns it.
std::vector<HostCopy> layer_copies(const StreamedLayer& layout, char* buffer, char* host);
std::vector<HostCopy> owned_layer_copies(const StreamedLayer& layout, char* buffer, char* held);

/// The streamed layers of a stage (plan/memory/streamed_layers.h): their linears in host memory or
/// with the ranks that own them, a few buffers, and copies from there to these that run beside
/// computation, in the order of use.
class LayerStream {
  public:
    /// Allocates buffers, and host memory where there are no `shared_layers`. Throws Error where
    /// either is short.
    LayerStream(const ReplicaView& view, const StagePlan& stage, Backend& backend,
                SharedLayers* shared_layers = nullptr);

    /// Whether this rank puts the layer where it streams from, by keep() or in host_layer().
    bool fills(std::int32_t layer) const;
    char* host_layer(std::int32_t layer) const;
    /// A buffer to put a layer together in, before keep(); only before the first use.
    char* assembly() const { return buffers_.front().as<char>(); }
    /// Copies what assembly() holds to host memory, as the layer's.
    void keep(std::int32_t layer);

    /// Waits for all copies.
    void finish() { link_->close(); }
    /// Seconds in which a layer comes while nothing computes, the median of a few; not while one is
    /// in use.
    double measured_load(StreamClock& clock);

    /// The streamed layers that are used from now on, in order. Those that are not needed soon make
    /// way.
    void expect(std::vector<std::int32_t> layers);
    struct Place {
        char* data = nullptr;  ///< the layer's buffer, until done()
        bool anew = false;     ///< copied there since the layer's last use: all else there is lost
    };
    /// For what is queued on the backend's stream until done(). A layer that is not the one
    /// expected is loaded now, and nothing is expected behind it.
    Place use(std::int32_t layer);
    void done();

    /// Records copies to buffers from now on.
    void start_recording() { recorded_.start(*link_); }
    std::vector<TransferRecord::Transfer> take_recorded() { return recorded_.take(); }

  private:
    void load_what_can();
    std::vector<HostCopy> copies(std::int32_t layer, char* buffer) const;

    StreamedLayer layout_;
    SharedLayers* shared_layers_;
    std::vector<std::int32_t> place_of_;  ///< per layer of the stage: its turn, -1 = resident
    std::vector<HostPages> host_;         ///< by turn; none with shared_layers
    std::vector<Buffer> buffers_;
    std::unique_ptr<HostCopies> link_;
    StreamOrder order_;
    std::vector<bool> anew_;  ///< per layer of the stage
    TransferRecord recorded_;
};

}  // namespace loratrain
