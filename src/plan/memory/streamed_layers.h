#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "plan/memory/memory_model.h"
#include "plan/plan.h"

namespace loratrain {

/// Layers whose frozen weights stream. The linears of such a layer lie in host memory, packed, or
/// in the memory of the rank that owns them (set_layer_owners()). For each use they are copied to
/// one of a few buffers of the stage, while earlier layers compute. Norms, biases, the embedding,
/// the head and LoRA pads are not copied.

/// Resident layers per stage that the job asks for (StagePlan::resident_layers). `auto` returns all
/// layers. `shared` returns 0 if several ranks share the weights, otherwise all layers.
std::int32_t resident_layers(const Job& job);
/// `stages` with resident_layers as the job says, and without owners: their ranks are not yet
/// known. With `shared`, the most layers that one of the sharers owns.
std::vector<StagePlan> with_residency(std::vector<StagePlan> stages, const Job& job);

/// Whether the residency of some stage of the replica lets layers stream, even if all of them stay.
bool may_stream(const ReplicaPlan& replica);
/// Number of layers of the stage that stream.
std::int32_t streamed_layers(const StagePlan& stage);
/// Number of the stage's layers that its own rank owns. Only for a stage with owners.
std::int32_t owned_layers(const StagePlan& stage);
/// Whether a layer streams. `layer` counts from the stage's first layer. Streamed layers are spread
/// as evenly as possible, each after the resident layers of its share, so that transfers spread. In
/// a stage with owners, the layers of other owners stream.
bool is_streamed(const StagePlan& stage, std::int32_t layer);

/// Most buffers of a stage: while one layer computes, the next ones arrive. Two would suffice if
/// all layers took equally long.
inline constexpr std::int32_t most_stream_buffers = 3;
/// Number of buffers of a stage: one per streamed layer, at most most_stream_buffers.
std::int32_t stream_buffers(const StagePlan& stage);

/// A group of linears in a buffer and in host memory: `rows` rows of `row_bytes`, `pitch` bytes
/// apart in the buffer and packed in host memory. Offsets in bytes.
struct StreamedGroup {
    std::uint64_t in_buffer = 0;
    std::uint64_t in_host = 0;
    std::uint64_t rows = 0;
    std::uint64_t row_bytes = 0;
    std::uint64_t pitch = 0;
};
/// Layout of one streamed layer.
struct StreamedLayer {
    std::array<StreamedGroup, linear_group_count> groups;
    std::uint64_t buffer_bytes = 0;
    std::uint64_t host_bytes = 0;  ///< bytes that are copied from the host
};
StreamedLayer streamed_layer(const ReplicaView& view);

/// Host memory of a layer, in bytes, rounded up to whole pages, since memory is pinned in pages.
std::uint64_t host_layer_bytes(const StreamedLayer& layer);

/// Which streamed layer is loaded into which buffer, and when. It has no side effects, so that
/// simulation and runtime make the same choice. Uses are known ahead: a layer is loaded as soon as
/// there is a buffer whose layer is needed later (Belady 1966). Layers used last in forward are
/// thus still present for backward.
class StreamOrder {
  public:
    explicit StreamOrder(std::int32_t buffers);

    struct Load {
        std::int32_t layer = 0;
        std::int32_t buffer = 0;
    };

    /// Replaces the expected uses: `layers` in the order in which they will be used from now on.
    void expect(std::vector<std::int32_t> layers);
    /// Empties all buffers, and expects nothing.
    void forget();
    /// The next load that can begin now; its buffer is reserved for it. None if no expected layer
    /// has still to be loaded, or all buffers hold layers that are needed sooner. Call until it
    /// returns none, after expect() and after done().
    std::optional<Load> next_load();
    /// Begins the use of the first expected layer, `layer`. Returns its buffer, which has been
    /// loaded.
    std::int32_t use(std::int32_t layer);
    /// Ends the use that use() began.
    void done();

    /// The buffer that holds the layer; -1 = none.
    std::int32_t buffer_of(std::int32_t layer) const;
    bool expects(std::int32_t layer) const;  ///< whether `layer` is the next expected one

  private:
    std::size_t next_use(std::int32_t layer) const;

    std::vector<std::int32_t> held_;  ///< per buffer, -1 = nothing
    std::vector<std::int32_t> expected_;
    std::size_t first_ = 0;     ///< index in expected_ of the first use that is not done
    std::int32_t in_use_ = -1;  ///< buffer in use; -1 = none
};

/// Frozen weights that ranks of one host hold once between them, and which rank owns what. There
/// are two cases: model.residency: shared (StagePlan::owners), and copies in host memory from which
/// layers stream.

/// Number of ranks that own each stage's layers between them with model.residency: shared; 1 = no
/// layers are shared. Replicas share layers if they are of one entry of the deployment and on one
/// host. The result is the smallest number of such replicas over all entries and hosts; 1 if the
/// ranks of some replica are on several hosts.
std::int32_t sharers(const std::vector<ReplicaJob>& deployment, const Cluster& cluster);

/// Sets StagePlan::owners and resident_layers of numbered replicas (place.h). Stages on one host
/// with the same layers, lanes and LoRA pads own the layers between them. `hosts`: the host number
/// of each rank.
void set_layer_owners(std::vector<ReplicaPlan>& replicas, std::span<const std::int32_t> hosts);

/// Whether any layers of the plan come from other ranks (StagePlan::owners).
bool has_layer_owners(const Plan& plan);

/// Copies in host memory of the layers that ranks stream. Each host has one copy of every layer
/// that its ranks use. The ranks that use a layer own the copies in turn. StagePlan::owners is not
/// considered.
class StreamedCopies {
  public:
    /// `host_of`: the host number of every rank.
    StreamedCopies(const Plan& plan, std::span<const std::int32_t> host_of);

    struct Copy {
        std::int32_t owner = 0;  ///< rank
        std::int32_t place = 0;  ///< among the owner's copies
    };
    /// The copy of a layer that `rank` streams. `layer` counts from the first layer of its stage.
    Copy of(std::int32_t rank, std::int32_t layer) const;
    /// Number of layers whose copies `rank` owns.
    std::int32_t copies_on(std::int32_t rank) const;
    /// Owners of the copies that `rank` streams from, in order.
    std::vector<std::int32_t> owners(std::int32_t rank) const;

  private:
    struct Entry {
        std::int32_t layer = 0;
        Copy copy;
    };
    std::vector<std::vector<Entry>> of_rank_;
    std::vector<std::int32_t> counts_;
};

/// Sets MemoryPlan::host of every rank to the bytes of the copies that it owns. `hosts`: the host
/// number of each rank.
void set_host_copies(Plan& plan, std::span<const std::int32_t> hosts);

}  // namespace loratrain
