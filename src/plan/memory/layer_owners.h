#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "plan/plan.h"

namespace loratrain {

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
