#include "comm/rank_pages.h"

#include <unistd.h>

#include <cstdint>
#include <cstring>
#include <random>

#include "base/error.h"
#include "comm/collective_values.h"

namespace loratrain {

namespace {

/// What a rank tells the others of its pages. The token stands at their beginning until all have
/// looked: a process of the same id in another container has other pages, or none.
struct PagesOffer {
    pid_t process = 0;
    int file = -1;
    std::uint64_t bytes = 0;
    std::uint64_t token = 0;
};
template <class Archive>
void fields(Archive& archive, PagesOffer& offer) {
    archive("process", offer.process);
    archive("file", offer.file);
    archive("bytes", offer.bytes);
    archive("token", offer.token);
}

std::uint64_t random_token() {
    std::random_device device;
    return std::uint64_t{device()} << 32U | device();
}

}  // namespace

RankPages::Shared RankPages::connect(const MpiSession& mpi, std::size_t bytes,
                                     const std::vector<int>& wanted) {
    auto shared = std::make_unique<RankPages>();
    PagesOffer own{getpid(), -1, bytes, random_token()};
    const std::string none = shared_refusal(mpi, [&] {
        if (bytes == 0) return;
        const auto& pages = shared->pages_[mpi.rank()] = std::make_unique<SharedPages>(bytes);
        own.file = pages->file();
        std::memcpy(pages->data(), &own.token, sizeof own.token);
    });
    if (!none.empty()) return {nullptr, none};
    const std::vector<PagesOffer> offers = gather(mpi, own);
    const std::string refusal = shared_refusal(mpi, [&] {
        for (const int rank : wanted) {
            if (rank == mpi.rank()) continue;
            const PagesOffer& offer = offers[static_cast<std::size_t>(rank)];
            auto pages = std::make_unique<SharedPages>(offer.process, offer.file, offer.bytes);
            const bool same = std::memcmp(pages->data(), &offer.token, sizeof offer.token) == 0;
            if (!same) throw Error(cat("the pages found are not those of rank ", rank));
            shared->pages_[rank] = std::move(pages);
        }
    });
    if (!refusal.empty()) return {nullptr, refusal};
    if (bytes > 0) std::memset(shared->of(mpi.rank()), 0, sizeof own.token);
    return {std::move(shared), ""};
}

std::vector<int> RankPages::ranks() const {
    std::vector<int> ranks;
    for (const auto& [rank, pages] : pages_) ranks.push_back(rank);
    return ranks;
}

}  // namespace loratrain
