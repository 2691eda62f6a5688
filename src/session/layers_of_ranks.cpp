#include "session/layers_of_ranks.h"

#include <utility>

#include "base/error.h"
#include "comm/collective.h"
#include "plan/memory/streamed_layers.h"

namespace loratrain {

namespace {

void end_loading(const MpiSession& mpi, const std::string& failure) {
    const std::vector<std::string> failures = gather_texts(mpi, failure);
    if (!failure.empty()) return;
    for (const std::string& other : failures) {
        if (!other.empty()) throw Error(other);
    }
}

}  // namespace

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

}  // namespace loratrain
