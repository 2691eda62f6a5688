#include <algorithm>
#include <chrono>
#include <vector>

#include "base/activity.h"
#include "comm/communicator.h"
#include "comm/mpi_check.h"
#include "comm/quiet_wait.h"
#include "comm/tags.h"

namespace loratrain {

namespace {

constexpr std::size_t largest_message = 1U << 30U;
constexpr std::chrono::microseconds between_looks{50};

class MpiTransfer final : public Transfer {
  public:
    MpiTransfer(std::vector<MPI_Request> requests, bool quiet)
        : requests_(std::move(requests)), quiet_(quiet) {}

    void wait() override {
        if (requests_.empty()) return;
        const activity::Waiting waiting;
        wait_for(requests_, quiet_, between_looks);
        requests_.clear();
    }

  private:
    std::vector<MPI_Request> requests_;
    bool quiet_;
};

/// Calls post(offset, count) for consecutive pieces whose byte count fits an int.
template <class Post>
std::unique_ptr<Transfer> in_pieces(std::size_t bytes, bool quiet, Post post) {
    std::vector<MPI_Request> requests;
    std::size_t at = 0;
    do {
        const std::size_t count = std::min(largest_message, bytes - at);
        requests.push_back(post(at, static_cast<int>(count)));
        at += count;
    } while (at < bytes);
    return std::make_unique<MpiTransfer>(std::move(requests), quiet);
}

/// Where the ranks of a host are more than its processors, who waits leaves them to the others.
class MpiCommunicator final : public Communicator {
  public:
    explicit MpiCommunicator(const MpiSession& mpi)
        : quiet_(threads_per_rank(mpi) * mpi.host_size() > mpi.host_processors()) {
        MPI_CHECK(MPI_Comm_dup(mpi.comm(), &comm_));
    }
    ~MpiCommunicator() override { MPI_Comm_free(&comm_); }
    MpiCommunicator(const MpiCommunicator&) = delete;
    MpiCommunicator& operator=(const MpiCommunicator&) = delete;

    std::unique_ptr<Transfer> send(const void* data, std::size_t bytes, int target,
                                   Channel channel) override {
        return in_pieces(bytes, quiet_, [&](std::size_t at, int count) {
            MPI_Request request = MPI_REQUEST_NULL;
            MPI_CHECK(MPI_Isend(static_cast<const char*>(data) + at, count, MPI_BYTE, target,
                                tags::pipeline(channel), comm_, &request));
            return request;
        });
    }

    std::unique_ptr<Transfer> receive(void* data, std::size_t bytes, int source,
                                      Channel channel) override {
        return in_pieces(bytes, quiet_, [&](std::size_t at, int count) {
            MPI_Request request = MPI_REQUEST_NULL;
            MPI_CHECK(MPI_Irecv(static_cast<char*>(data) + at, count, MPI_BYTE, source,
                                tags::pipeline(channel), comm_, &request));
            return request;
        });
    }

  private:
    MPI_Comm comm_ = MPI_COMM_NULL;
    bool quiet_;
};

}  // namespace

std::unique_ptr<Communicator> make_mpi_communicator(const MpiSession& mpi) {
    return std::make_unique<MpiCommunicator>(mpi);
}

}  // namespace loratrain
