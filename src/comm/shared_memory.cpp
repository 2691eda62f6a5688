#include "comm/shared_memory.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <array>
#include <cinttypes>
#include <cstdint>
#include <cstdio>
#include <random>
#include <utility>

#include "comm/mpi_check.h"
#include "comm/tags.h"

namespace loratrain {

namespace {

using Name = std::array<char, 32>;  ///< ends with 0; empty = of nothing

/// No other memory has it, on whatever host: who can open it has the right one.
Name random_name() {
    std::random_device device;
    const std::uint64_t number = std::uint64_t{device()} << 32U | device();
    Name name{};
    std::snprintf(name.data(), name.size(), "/loratrain-%016" PRIx64, number);
    return name;
}

/// Null where it cannot be had.
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

/// The name goes with this object.
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

}  // namespace

std::unique_ptr<SharedMemory> SharedMemory::connect(const MpiSession& mpi, int peer,
                                                    std::size_t bytes) {
    if (mpi.rank() < peer) return Offer(bytes).make_to(mpi, peer);
    return accept_from(mpi, peer, bytes);
}

SharedMemory::~SharedMemory() {
    munmap(data_, bytes_);
}

}  // namespace loratrain
