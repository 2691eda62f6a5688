#include "comm/shared_memory.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <array>
#include <cinttypes>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <random>
#include <utility>

#include "base/error.h"
#include "comm/collective.h"
#include "comm/tags.h"

namespace loratrain {

namespace {

using Name = std::array<char, 32>;  ///< ends with 0; empty = no memory

std::uint64_t random_token() {
    std::random_device device;
    return std::uint64_t{device()} << 32U | device();
}

/// A name that no other memory has on any host: a process that can open it has the right memory.
Name random_name() {
    Name name{};
    std::snprintf(name.data(), name.size(), "/loratrain-%016" PRIx64, random_token());
    return name;
}

/// Null if the system refuses.
std::unique_ptr<SharedMemory> map(const Name& name, std::size_t bytes, int create) {
    const int file = shm_open(name.data(), O_RDWR | create, S_IRUSR | S_IWUSR);
    if (file < 0) return nullptr;
    void* data = MAP_FAILED;
    // Not ftruncate: where memory is short, the first access would end the process.
    if (posix_fallocate(file, 0, static_cast<off_t>(bytes)) == 0) {
        data = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    }
    close(file);
    if (data == MAP_FAILED) return nullptr;
    return std::make_unique<SharedMemory>(data, bytes);
}

/// New memory whose name is removed with this object.
class Offer {
  public:
    explicit Offer(std::size_t bytes)
        : name_(random_name()), memory_(map(name_, bytes, O_CREAT | O_EXCL)) {}
    ~Offer() { shm_unlink(name_.data()); }
    Offer(const Offer&) = delete;
    Offer& operator=(const Offer&) = delete;

    std::unique_ptr<SharedMemory> make_to(const MpiSession& mpi, int peer) {
        const Name sent = memory_ ? name_ : Name{};
        MPI_CHECK(MPI_Send(sent.data(), static_cast<int>(sent.size()), MPI_CHAR, peer,
                           tags::memory_name, mpi.comm()));
        int accepted = 0;
        MPI_CHECK(MPI_Recv(&accepted, 1, MPI_INT, peer, tags::memory_answer, mpi.comm(),
                           MPI_STATUS_IGNORE));
        if (accepted == 0) return nullptr;
        return std::move(memory_);
    }

  private:
    Name name_;
    std::unique_ptr<SharedMemory> memory_;
};

std::unique_ptr<SharedMemory> accept_from(const MpiSession& mpi, int peer, std::size_t bytes) {
    Name name{};
    MPI_CHECK(MPI_Recv(name.data(), static_cast<int>(name.size()), MPI_CHAR, peer,
                       tags::memory_name, mpi.comm(), MPI_STATUS_IGNORE));
    std::unique_ptr<SharedMemory> memory = map(name, bytes, 0);
    const int accepted = memory ? 1 : 0;
    MPI_CHECK(MPI_Send(&accepted, 1, MPI_INT, peer, tags::memory_answer, mpi.comm()));
    return memory;
}

/// What a rank sends the others about its pages. The token stands at the beginning of the pages
/// until all ranks have checked it, since a process in another container may have the same id.
struct PagesOffer {
    pid_t process = 0;
    int file = -1;
    std::uint64_t bytes = 0;
    std::uint64_t token = 0;
};
template <class Archive>
void fields(Archive& archive, PagesOffer& offer) {
    archive.list(offer.process, offer.file, offer.bytes, offer.token);
}

}  // namespace

std::unique_ptr<SharedMemory> SharedMemory::connect(const MpiSession& mpi, int peer,
                                                    std::size_t bytes) {
    if (mpi.rank() < peer) return Offer(bytes).make_to(mpi, peer);
    return accept_from(mpi, peer, bytes);
}

SharedMemory::~SharedMemory() {
    munmap(data_, bytes_);
}

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
            if (!same)
                throw Error(cat("the shared pages that were found do not belong to rank ", rank));
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
