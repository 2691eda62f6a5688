#include "comm/shared_page.h"

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
std::unique_ptr<SharedPage> map(const Name& name, int create) {
    const int file = shm_open(name.data(), O_RDWR | create, S_IRUSR | S_IWUSR);
    if (file < 0) return nullptr;
    void* data = MAP_FAILED;
    // Not ftruncate: where memory is short, the first access would end the process.
    if (posix_fallocate(file, 0, SharedPage::bytes) == 0) {
        data = mmap(nullptr, SharedPage::bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    }
    close(file);
    if (data == MAP_FAILED) return nullptr;
    return std::make_unique<SharedPage>(data);
}

/// The name goes with this object.
class Offer {
  public:
    Offer() : name_(random_name()), page_(map(name_, O_CREAT | O_EXCL)) {}
    ~Offer() { shm_unlink(name_.data()); }
    Offer(const Offer&) = delete;
    Offer& operator=(const Offer&) = delete;

    std::unique_ptr<SharedPage> make_to(const MpiSession& mpi, int peer) {
        const Name sent = page_ ? name_ : Name{};
        MPI_CHECK(MPI_Send(sent.data(), static_cast<int>(sent.size()), MPI_CHAR, peer,
                           tags::page_name, mpi.comm()));
        int accepted = 0;
        MPI_CHECK(MPI_Recv(&accepted, 1, MPI_INT, peer, tags::page_answer, mpi.comm(),
                           MPI_STATUS_IGNORE));
        if (accepted == 0) return nullptr;
        return std::move(page_);
    }

  private:
    Name name_;
    std::unique_ptr<SharedPage> page_;
};

std::unique_ptr<SharedPage> accept_from(const MpiSession& mpi, int peer) {
    Name name{};
    MPI_CHECK(MPI_Recv(name.data(), static_cast<int>(name.size()), MPI_CHAR, peer, tags::page_name,
                       mpi.comm(), MPI_STATUS_IGNORE));
    std::unique_ptr<SharedPage> page = map(name, 0);
    const int accepted = page ? 1 : 0;
    MPI_CHECK(MPI_Send(&accepted, 1, MPI_INT, peer, tags::page_answer, mpi.comm()));
    return page;
}

}  // namespace

std::unique_ptr<SharedPage> SharedPage::connect(const MpiSession& mpi, int peer) {
    if (mpi.rank() < peer) return Offer().make_to(mpi, peer);
    return accept_from(mpi, peer);
}

SharedPage::~SharedPage() {
    munmap(data_, bytes);
}

}  // namespace loratrain
