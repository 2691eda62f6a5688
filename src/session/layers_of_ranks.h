#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "backend/backend.h"
#include "backend/host_copies.h"
#include "comm/mpi_session.h"
#include "comm/shared_memory.h"
#include "model/shared_layers.h"
#include "plan/memory/streamed_layers.h"
#include "plan/place.h"
#include "plan/replica_view.h"

namespace loratrain {

/// A rank's stage in the plan.
struct OwnStage {
    OwnStage(const Plan& plan, int rank);
    /// The rank that owns a layer, on this one's lane.
    int owner(std::int32_t layer) const;
    /// The layer's place among its owner's.
    std::size_t turn(std::int32_t layer) const;

    RankPlace place;
    ReplicaView view;
    StagePlan stage;
};

/// One copy of what the ranks of a host stream, in its memory.
class HostLayers final : public SharedLayers {
  public:
    /// `mpi` is kept by reference.
    HostLayers(const MpiSession& mpi, const Plan& plan, StreamedCopies copies,
               std::unique_ptr<RankPages> pages);

    bool owned_by_ranks() const override { return false; }
    std::vector<std::span<char>> host_memory() const override;
    bool fills(std::int32_t layer) const override;
    void* room() const override { return nullptr; }
    std::size_t room_bytes() const override { return 0; }
    void loaded(const std::string& failure, void* held) override;
    char* weights(std::int32_t layer) const override;
    void leave() override {}

  private:
    const MpiSession& mpi_;
    std::size_t host_bytes_;
    StreamedCopies copies_;
    std::unique_ptr<RankPages> pages_;
};

/// Layers that other ranks own: in the memory of their GPUs, or of ranks on processors in pages.
class OwnerLayers final : public SharedLayers {
  public:
    /// `pages`: of ranks on processors; null on GPUs. `mpi` is kept by reference.
    OwnerLayers(const MpiSession& mpi, const Plan& plan, Backend& backend,
                std::unique_ptr<RankPages> pages);

    bool owned_by_ranks() const override { return true; }
    std::vector<std::span<char>> host_memory() const override { return {}; }
    bool fills(std::int32_t /*layer*/) const override { return false; }
    void* room() const override;
    std::size_t room_bytes() const override;
    void loaded(const std::string& failure, void* held) override;
    char* weights(std::int32_t layer) const override;
    void leave() override;

  private:
    void open(std::int32_t owner, const std::vector<std::string>& offers);

    const MpiSession& mpi_;
    OwnStage own_;
    std::size_t layer_bytes_;
    std::unique_ptr<RankPages> pages_;
    std::unique_ptr<HostCopies> link_;
    std::map<int, char*> opened_;
};

}  // namespace loratrain
