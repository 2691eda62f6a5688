#include "session/make_shared_layers.h"

#include <algorithm>
#include <map>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "backend/host_copies.h"
#include "base/error.h"
#include "base/log.h"
#include "base/system.h"
#include "base/text.h"
#include "comm/collective.h"
#include "comm/shared_memory.h"
#include "plan/memory/streamed_layers.h"
#include "plan/place.h"
#include "plan/replica_view.h"
#include "session/cluster.h"

namespace loratrain {

namespace {

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

void end_loading(const MpiSession& mpi, const std::string& failure) {
    const std::vector<std::string> failures = gather_texts(mpi, failure);
    if (!failure.empty()) return;
    for (const std::string& other : failures) {
        if (!other.empty()) throw Error(other);
    }
}

OwnStage::OwnStage(const Plan& plan, int rank)
    : place(place_of(plan, rank)),
      view(view_of(plan, plan.replicas[place.replica])),
      stage(view.replica.stages[place.stage]) {}

int OwnStage::owner(std::int32_t layer) const {
    const auto turn = static_cast<std::size_t>(layer) % stage.owners.size();
    return stage.owners[turn] + place.lane;
}

std::size_t OwnStage::turn(std::int32_t layer) const {
    return static_cast<std::size_t>(layer) / stage.owners.size();
}

HostLayers::HostLayers(const MpiSession& mpi, const Plan& plan, StreamedCopies copies,
                       std::unique_ptr<RankPages> pages)
    : mpi_(mpi),
      host_bytes_(host_layer_bytes(streamed_layer(OwnStage(plan, mpi.rank()).view))),
      copies_(std::move(copies)),
      pages_(std::move(pages)) {}

std::vector<std::span<char>> HostLayers::host_memory() const {
    std::vector<std::span<char>> memory;
    for (const int rank : copies_.owners(mpi_.rank())) {
        memory.emplace_back(pages_->of(rank), pages_->bytes(rank));
    }
    return memory;
}

bool HostLayers::fills(std::int32_t layer) const {
    return copies_.of(mpi_.rank(), layer).owner == mpi_.rank();
}

void HostLayers::loaded(const std::string& failure, void* /*held*/) {
    end_loading(mpi_, failure);
}

char* HostLayers::weights(std::int32_t layer) const {
    const StreamedCopies::Copy copy = copies_.of(mpi_.rank(), layer);
    return pages_->of(copy.owner) + static_cast<std::size_t>(copy.place) * host_bytes_;
}

OwnerLayers::OwnerLayers(const MpiSession& mpi, const Plan& plan, Backend& backend,
                         std::unique_ptr<RankPages> pages)
    : mpi_(mpi),
      own_(plan, mpi.rank()),
      layer_bytes_(streamed_layer(own_.view).buffer_bytes),
      pages_(std::move(pages)),
      link_(backend.make_host_copies(1)) {}

void* OwnerLayers::room() const {
    if (!pages_ || own_.stage.owners.empty() || owned_layers(own_.stage) == 0) return nullptr;
    return pages_->of(mpi_.rank());
}

std::size_t OwnerLayers::room_bytes() const {
    return room() == nullptr ? 0 : pages_->bytes(mpi_.rank());
}

void OwnerLayers::loaded(const std::string& failure, void* held) {
    end_loading(mpi_, failure);
    if (pages_ || !failure.empty()) return;
    std::string offer;
    std::string refusal = shared_refusal(mpi_, [&] {
        if (held != nullptr) offer = link_->offer(held);
    });
    if (refusal.empty()) {
        const std::vector<std::string> offers = gather_texts(mpi_, offer);
        refusal = shared_refusal(mpi_, [&] {
            for (const std::int32_t owner : own_.stage.owners) open(owner, offers);
        });
    }
    if (!refusal.empty()) throw Error(cat("weights of other ranks: ", refusal));
}

char* OwnerLayers::weights(std::int32_t layer) const {
    const int owner = own_.owner(layer);
    char* held = pages_ ? pages_->of(owner) : opened_.at(owner);
    return held + own_.turn(layer) * layer_bytes_;
}

void OwnerLayers::leave() {
    link_->close();
    opened_.clear();
    barrier(mpi_);
}

void OwnerLayers::open(std::int32_t owner, const std::vector<std::string>& offers) {
    const int rank = owner + own_.place.lane;
    const std::string& offer = offers[static_cast<std::size_t>(rank)];
    if (rank == mpi_.rank() || offer.empty()) return;
    opened_[rank] = static_cast<char*>(link_->open(offer));
}

/// How far ranks share weights: "host" = not GPUs' memory, "none" = nothing.
constexpr const char* switch_name = "LORATRAIN_SHARED_WEIGHTS";

class SharedLayersMaker {
  public:
    SharedLayersMaker(const MpiSession& mpi, const Plan& plan, Backend& backend)
        : mpi_(mpi),
          plan_(plan),
          backend_(backend),
          hosts_(host_numbers(mpi)),
          own_(plan, mpi.rank()),
          copies_(plan, hosts_) {}

    std::unique_ptr<SharedLayers> make() {
        if (has_layer_owners(plan_)) {
            std::string refusal = allowed_ == Allowed::all ? owners_apart() : turned_off();
            if (refusal.empty()) {
                auto shared_layers =
                    plan_.backend == BackendKind::cuda ? on_gpus(refusal) : on_processors(refusal);
                if (shared_layers) return shared_layers;
            }
            warn(cat("ranks cannot read each other's weights (", refusal,
                     "): what they do not own streams from the host's memory"));
        }
        return with_copies();
    }

  private:
    enum class Allowed : std::uint8_t { all, host, none };

    static Allowed allowed() {
        const std::string text = environment(switch_name);
        if (text.empty()) return Allowed::all;
        if (text == "host") return Allowed::host;
        if (text == "none") return Allowed::none;
        throw InputError(switch_name, cat("'", text, "' is not known"),
                         "give host or none, or do not set it");
    }

    static std::string turned_off() { return cat(switch_name, "=", environment(switch_name)); }

    void warn(const std::string& text) const {
        if (mpi_.is_root()) log::warn(text);
    }

    /// "" where the owners of each stage are on one host.
    std::string owners_apart() const {
        for (const ReplicaPlan& replica : plan_.replicas) {
            for (const StagePlan& stage : replica.stages) {
                for (const std::int32_t owner : stage.owners) {
                    if (hosts_[static_cast<std::size_t>(owner)] ==
                        hosts_[static_cast<std::size_t>(stage.rank)]) {
                        continue;
                    }
                    return cat("ranks ", stage.rank, " and ", owner, " are on different hosts");
                }
            }
        }
        return "";
    }

    std::unique_ptr<SharedLayers> on_processors(std::string& refusal) {
        std::vector<int> wanted;
        std::size_t bytes = 0;
        if (!own_.stage.owners.empty()) {
            bytes = static_cast<std::size_t>(owned_layers(own_.stage)) *
                    streamed_layer(own_.view).buffer_bytes;
            const auto holding = std::min(static_cast<std::int32_t>(own_.stage.owners.size()),
                                          own_.stage.layer_count);
            for (std::int32_t l = 0; l < holding; ++l) wanted.push_back(own_.owner(l));
        }
        RankPages::Shared shared = RankPages::connect(mpi_, bytes, wanted);
        refusal = shared.refusal;
        if (!shared.pages) return nullptr;
        return std::make_unique<OwnerLayers>(mpi_, plan_, backend_, std::move(shared.pages));
    }

    /// Tried with a little memory, as the weights' is only allocated when all is decided.
    std::unique_ptr<SharedLayers> on_gpus(std::string& refusal) {
        constexpr std::size_t tried_bytes = std::size_t{2} << 20U;
        const std::unique_ptr<HostCopies> link = backend_.make_host_copies(1);
        Buffer memory;
        std::string offer;
        refusal = shared_refusal(mpi_, [&] {
            memory = backend_.allocate(tried_bytes, "memory that other ranks open");
            offer = link->offer(memory.data());
        });
        if (!refusal.empty()) return nullptr;
        const std::vector<std::string> offers = gather_texts(mpi_, offer);
        refusal = shared_refusal(mpi_, [&] {
            for (const std::int32_t owner : own_.stage.owners) {
                const int rank = owner + own_.place.lane;
                if (rank != mpi_.rank()) link->open(offers[static_cast<std::size_t>(rank)]);
            }
            link->close();
        });
        barrier(mpi_);
        if (!refusal.empty()) return nullptr;
        return std::make_unique<OwnerLayers>(mpi_, plan_, backend_, nullptr);
    }

    bool any_shares() const {
        for (std::int32_t rank = 0; rank < static_cast<std::int32_t>(hosts_.size()); ++rank) {
            for (const std::int32_t owner : copies_.owners(rank)) {
                if (owner != rank) return true;
            }
        }
        return false;
    }

    std::size_t layer_bytes() const { return host_layer_bytes(streamed_layer(own_.view)); }

    /// What a rank streams that has no part in a copy of its host's.
    std::size_t private_bytes() const {
        return static_cast<std::size_t>(streamed_layers(own_.stage)) * layer_bytes();
    }

    std::unique_ptr<SharedLayers> with_copies() {
        const auto owned = static_cast<std::size_t>(copies_.copies_on(mpi_.rank())) * layer_bytes();
        if (has_layer_owners(plan_)) check_room(owned);
        if (!any_shares()) return nullptr;
        RankPages::Shared shared{nullptr, turned_off()};
        if (allowed_ != Allowed::none) {
            shared = RankPages::connect(mpi_, owned, copies_.owners(mpi_.rank()));
        }
        if (shared.pages) {
            return std::make_unique<HostLayers>(mpi_, plan_, std::move(copies_),
                                                std::move(shared.pages));
        }
        warn(cat("the ranks of a host cannot share memory (", shared.refusal,
                 "): each has a copy of its own of the layers that stream"));
        check_room(private_bytes());
        return nullptr;
    }

    /// What was not planned: `bytes` of this rank's.
    void check_room(std::uint64_t bytes) const {
        const std::vector<std::uint64_t> all = gather_numbers(mpi_, bytes);
        const std::vector<std::uint64_t> free = gather_numbers(mpi_, available_memory());
        std::uint64_t needed = 0;
        for (std::size_t rank = 0; rank < all.size(); ++rank) {
            if (hosts_[rank] == hosts_[static_cast<std::size_t>(mpi_.rank())]) needed += all[rank];
        }
        const auto own = static_cast<std::size_t>(mpi_.rank());
        agree(mpi_, [&] {
            if (needed <= free[own]) return;
            throw Error(cat("the layers that stream need ", human_bytes(needed),
                            " of the memory of ", mpi_.host(), ", which has ",
                            human_bytes(free[own])));
        });
    }

    const MpiSession& mpi_;
    const Plan& plan_;
    Backend& backend_;
    Allowed allowed_ = allowed();
    std::vector<std::int32_t> hosts_;
    OwnStage own_;
    StreamedCopies copies_;
};

}  // namespace

std::unique_ptr<SharedLayers> make_shared_layers(const MpiSession& mpi, const Plan& plan,
                                                 Backend& backend) {
    if (mpi.size() == 1) return nullptr;
    return SharedLayersMaker(mpi, plan, backend).make();
}

}  // namespace loratrain
