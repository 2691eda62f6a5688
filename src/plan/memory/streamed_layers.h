#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "plan/memory/memory_model.h"
#include "plan/plan.h"

namespace loratrain {

/// Layers whose frozen weights stream: their linears lie in host memory, packed, or in the memory
/// of the rank that owns them (set_layer_owners()), and are copied to one of a few buffers of the
/// stage for each use, while the layers before compute. Norms and biases, the embedding and the
/// head stay. LoRA pads are no part of what is copied.

/// StagePlan::resident_layers as the job says; auto counts as all, shared among several as none.
std::int32_t resident_layers(const Job& job);
/// The stages with it, before their ranks are known: of shared ones the most that one has.
std::vector<StagePlan> with_residency(std::vector<StagePlan> stages, const Job& job);

/// Whether layers of a stage may stream, however many there are.
bool may_stream(const ReplicaPlan& replica);
/// Of the stage's.
std::int32_t streamed_layers(const StagePlan& stage);
/// Of a stage with owners, the layers that its own rank owns.
std::int32_t owned_layers(const StagePlan& stage);
/// Whether a layer, counted from the stage's first, is one of them: they lie as evenly as can be,
/// each behind the resident ones of its share, so that transfers spread; of a stage with owners,
/// all that others own.
bool is_streamed(const StagePlan& stage, std::int32_t layer);

/// While one layer computes, the next ones come: two would do where all take equally long.
inline constexpr std::int32_t most_stream_buffers = 3;
std::int32_t stream_buffers(const StagePlan& stage);

/// What a buffer holds of a group of linears, and what of that the host has: `rows` rows of
/// `row_bytes`, packed there, `pitch` bytes apart in the buffer. Offsets in bytes.
struct StreamedGroup {
    std::uint64_t in_buffer = 0;
    std::uint64_t in_host = 0;
    std::uint64_t rows = 0;
    std::uint64_t row_bytes = 0;
    std::uint64_t pitch = 0;
};
struct StreamedLayer {
    std::array<StreamedGroup, linear_group_count> groups;
    std::uint64_t buffer_bytes = 0;
    std::uint64_t host_bytes = 0;  ///< that are copied
};
StreamedLayer streamed_layer(const ReplicaView& view);

/// Of whole pages, as host memory is pinned.
std::uint64_t host_layer_bytes(const StreamedLayer& layer);

/// Which streamed layer comes into which buffer, and when: pure, so that simulation and runtime do
/// the same. Uses are known ahead; a layer comes as soon as a buffer is free whose layer is needed
/// later than it (Belady 1966), so that what was used last in forward is there for backward.
class StreamOrder {
  public:
    explicit StreamOrder(std::int32_t buffers);

    struct Load {
        std::int32_t layer = 0;
        std::int32_t buffer = 0;
    };

    /// The layers that are used from now on, in order, in place of what was expected before.
    void expect(std::vector<std::int32_t> layers);
    /// Buffers hold nothing from now on, and nothing is expected.
    void forget();
    /// The next load that can begin now; its buffer is of no other use from here on. None: all
    /// buffers hold what is needed sooner. To be asked until there is none, after expect() and
    /// done().
    std::optional<Load> next_load();
    /// The first of the expected layers is used now; its buffer, which has been loaded.
    std::int32_t use(std::int32_t layer);
    /// That use has ended.
    void done();

    /// Where a layer is, -1: in none.
    std::int32_t buffer_of(std::int32_t layer) const;
    bool expects(std::int32_t layer) const;  ///< as the next one

  private:
    std::size_t next_use(std::int32_t layer) const;

    std::vector<std::int32_t> held_;  ///< per buffer, -1 = nothing
    std::vector<std::int32_t> expected_;
    std::size_t first_ = 0;     ///< of expected_ that is not done
    std::int32_t in_use_ = -1;  ///< buffer
};

/// Frozen weights that ranks of one host have once between them: which rank owns what. Two ways:
/// model.residency: shared (StagePlan::owners), and the copies in the host's memory from which
/// layers stream.

/// Of model.residency: shared, so many ranks own each stage's layers between them: replicas of
/// one entry of the deployment whose ranks are all on one host, the fewest of any; 1: none do.
std::int32_t sharers(const std::vector<ReplicaJob>& deployment, const Cluster& cluster);

/// Sets StagePlan::owners and resident_layers of numbered replicas (place.h): stages with the same
/// layers, lanes and LoRA pads on one host own them between them. `hosts`: a number of each rank's
/// host.
void set_layer_owners(std::vector<ReplicaPlan>& replicas, std::span<const std::int32_t> hosts);

/// Whether layers come from other ranks (StagePlan::owners) anywhere in the plan.
bool has_layer_owners(const Plan& plan);

/// The layers that ranks stream from host memory: one copy on each host of what its ranks use, each
/// layer's on one of those that do, in turn. StagePlan::owners is not looked at.
class StreamedCopies {
  public:
    /// `host_of`: a number of the host of every rank.
    StreamedCopies(const Plan& plan, std::span<const std::int32_t> host_of);

    struct Copy {
        std::int32_t owner = 0;  ///< rank
        std::int32_t place = 0;  ///< among the owner's copies
    };
    /// Of a layer that the rank streams, counted from its stage's first.
    Copy of(std::int32_t rank, std::int32_t layer) const;
    /// Layers of which the rank has the copy.
    std::int32_t copies_on(std::int32_t rank) const;
    /// The owners of what the rank streams, in order.
    std::vector<std::int32_t> owners(std::int32_t rank) const;

  private:
    struct Entry {
        std::int32_t layer = 0;
        Copy copy;
    };
    std::vector<std::vector<Entry>> of_rank_;
    std::vector<std::int32_t> counts_;
};

/// Sets MemoryPlan::host of every rank to what it has of its host's copies. `hosts`: a number of
/// each rank's host.
void set_host_copies(Plan& plan, std::span<const std::int32_t> hosts);

}  // namespace loratrain
