#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "backend/backend.h"
#include "backend/host_copies.h"
#include "base/host_pages.h"
#include "model/layer_homes.h"
#include "plan/memory/residency.h"
#include "plan/memory/stream_order.h"

namespace loratrain {

/// Of a layer, between a buffer and host memory, or from where another rank holds it.
std::vector<HostCopy> layer_copies(const StreamedLayer& layout, char* buffer, char* host);
std::vector<HostCopy> held_layer_copies(const StreamedLayer& layout, char* buffer, char* held);

/// The streamed layers of a stage (plan/memory/residency.h): their linears in host memory or with
/// the ranks that hold them, a few buffers, and copies from there to these that run beside
/// computation, in the order of use.
class LayerStream {
  public:
    /// Allocates buffers, and host memory where there are no `homes`. Throws Error where either is
    /// short.
    LayerStream(const ReplicaView& view, const StagePlan& stage, Backend& backend,
                LayerHomes* homes = nullptr);

    /// Whether this rank puts the layer where it streams from, by keep() or in host_block().
    bool fills(std::int32_t layer) const;
    char* host_block(std::int32_t layer) const;
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

    /// A copy to a buffer, in seconds since start_recording().
    struct Transfer {
        std::int32_t layer = 0;
        double start = 0.0;
        double end = 0.0;
    };
    /// Records transfers from now on, and forgets those before.
    void start_recording();
    /// Those recorded before the last call, so that nothing waits for them; none where nothing
    /// records.
    std::vector<Transfer> take_recorded();

  private:
    void load_what_can();
    std::vector<HostCopy> copies(std::int32_t layer, char* buffer) const;

    StreamedLayer layout_;
    LayerHomes* homes_;
    std::vector<std::int32_t> place_of_;  ///< per layer of the stage: its turn, -1 = resident
    std::vector<HostPages> host_;         ///< by turn; none with homes
    std::vector<Buffer> buffers_;
    std::unique_ptr<HostCopies> link_;
    StreamOrder order_;
    std::vector<bool> anew_;  ///< per layer of the stage

    struct Recorded {
        std::unique_ptr<StreamClock> clock;  ///< a point, two of each layer, and one
        std::vector<std::int32_t> layers;
    };
    Recorded recorded_now_;
    Recorded recorded_before_;
    double start_of_before_ = 0.0;
};

}  // namespace loratrain
