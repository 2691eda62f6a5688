#include "comm/nccl_communicator.h"

#ifdef LORATRAIN_WITH_NCCL

#include <cuda_runtime_api.h>
#include <nccl.h>

#include <array>
#include <map>
#include <utility>
#include <vector>

#include "base/error.h"
#include "comm/mpi_check.h"

namespace loratrain {

namespace {

constexpr int id_tag = 90;
constexpr std::array channels{Channel::forward, Channel::backward, Channel::norms};

void check_cuda(cudaError_t code, const char* what) {
    if (code != cudaSuccess) throw Error(cat(what, ": ", cudaGetErrorString(code)));
}

void check_nccl(ncclResult_t code, const char* what) {
    if (code != ncclSuccess) throw Error(cat(what, ": ", ncclGetErrorString(code)));
}

/// An event without timing, reused for the next transfer of its channel.
class Event {
  public:
    Event() {
        check_cuda(cudaEventCreateWithFlags(&event_, cudaEventDisableTiming), "cudaEventCreate");
    }
    ~Event() { cudaEventDestroy(event_); }
    Event(const Event&) = delete;
    Event& operator=(const Event&) = delete;
    cudaEvent_t get() const { return event_; }

  private:
    cudaEvent_t event_ = nullptr;
};

/// Events waiting for their next use.
using EventPool = std::vector<std::unique_ptr<Event>>;

class NcclTransfer final : public Transfer {
  public:
    NcclTransfer(std::unique_ptr<Event> done, cudaStream_t compute, EventPool& pool)
        : done_(std::move(done)), compute_(compute), pool_(pool) {}
    ~NcclTransfer() override {
        if (done_) pool_.push_back(std::move(done_));
    }
    NcclTransfer(const NcclTransfer&) = delete;
    NcclTransfer& operator=(const NcclTransfer&) = delete;

    void wait() override {
        if (!done_) return;
        check_cuda(cudaStreamWaitEvent(compute_, done_->get(), 0), "cudaStreamWaitEvent");
        pool_.push_back(std::move(done_));
    }

  private:
    std::unique_ptr<Event> done_;
    cudaStream_t compute_;
    EventPool& pool_;
};

/// One direction between two ranks.
class Link {
  public:
    Link(const ncclUniqueId& id, int place) {
        int least = 0;
        int greatest = 0;
        check_cuda(cudaDeviceGetStreamPriorityRange(&least, &greatest), "stream priorities");
        check_cuda(cudaStreamCreateWithPriority(&stream_, cudaStreamNonBlocking, greatest),
                   "cudaStreamCreate");
        check_nccl(ncclCommInitRank(&comm_, 2, id, place), "ncclCommInitRank");
    }
    ~Link() {
        ncclCommDestroy(comm_);
        cudaStreamDestroy(stream_);
    }
    Link(const Link&) = delete;
    Link& operator=(const Link&) = delete;
    ncclComm_t comm() const { return comm_; }
    cudaStream_t stream() const { return stream_; }

  private:
    ncclComm_t comm_ = nullptr;
    cudaStream_t stream_ = nullptr;
};

class NcclCommunicator final : public Communicator {
  public:
    NcclCommunicator(const MpiSession& mpi, cudaStream_t compute)
        : rank_(mpi.rank()), compute_(compute) {
        for (int low = 0; low + 1 < mpi.size(); ++low) {
            if (rank_ == low || rank_ == low + 1) connect(mpi, low);
        }
    }

    std::unique_ptr<Transfer> send(const void* data, std::size_t bytes, int target,
                                   Channel channel) override {
        const Link& link = order_after_compute(target, channel);
        check_nccl(ncclSend(data, bytes, ncclUint8, place(target), link.comm(), link.stream()),
                   "ncclSend");
        return finish(link);
    }

    std::unique_ptr<Transfer> receive(void* data, std::size_t bytes, int source,
                                      Channel channel) override {
        const Link& link = order_after_compute(source, channel);
        check_nccl(ncclRecv(data, bytes, ncclUint8, place(source), link.comm(), link.stream()),
                   "ncclRecv");
        return finish(link);
    }

  private:
    /// Place of a neighbour in the two-rank communicator shared with it: the lower rank is 0.
    int place(int neighbour) const { return neighbour < rank_ ? 0 : 1; }

    void connect(const MpiSession& mpi, int low) {
        const bool is_low = rank_ == low;
        const int neighbour = is_low ? low + 1 : low;
        for (const Channel channel : channels) {
            ncclUniqueId id{};
            if (is_low) {
                check_nccl(ncclGetUniqueId(&id), "ncclGetUniqueId");
                MPI_CHECK(MPI_Send(&id, sizeof(id), MPI_BYTE, neighbour, id_tag, mpi.world()));
            } else {
                MPI_CHECK(MPI_Recv(&id, sizeof(id), MPI_BYTE, neighbour, id_tag, mpi.world(),
                                   MPI_STATUS_IGNORE));
            }
            links_[{neighbour, channel}] = std::make_unique<Link>(id, is_low ? 0 : 1);
        }
    }

    std::unique_ptr<Event> take_event() {
        if (pool_.empty()) return std::make_unique<Event>();
        std::unique_ptr<Event> event = std::move(pool_.back());
        pool_.pop_back();
        return event;
    }

    const Link& order_after_compute(int neighbour, Channel channel) {
        const Link& link = *links_.at({neighbour, channel});
        std::unique_ptr<Event> ready = take_event();
        check_cuda(cudaEventRecord(ready->get(), compute_), "cudaEventRecord");
        check_cuda(cudaStreamWaitEvent(link.stream(), ready->get(), 0), "cudaStreamWaitEvent");
        pool_.push_back(std::move(ready));
        return link;
    }

    std::unique_ptr<Transfer> finish(const Link& link) {
        std::unique_ptr<Event> done = take_event();
        check_cuda(cudaEventRecord(done->get(), link.stream()), "cudaEventRecord");
        return std::make_unique<NcclTransfer>(std::move(done), compute_, pool_);
    }

    int rank_;
    cudaStream_t compute_;
    EventPool pool_;
    std::map<std::pair<int, Channel>, std::unique_ptr<Link>> links_;
};

}  // namespace

std::unique_ptr<Communicator> make_nccl_communicator(const MpiSession& mpi, void* compute_stream) {
    return std::make_unique<NcclCommunicator>(mpi, static_cast<cudaStream_t>(compute_stream));
}

}  // namespace loratrain

#else

#include "base/error.h"

namespace loratrain {

std::unique_ptr<Communicator> make_nccl_communicator(const MpiSession& /*mpi*/,
                                                     void* /*compute_stream*/) {
    throw InputError("run.backend",
                     "several GPUs asked for, but this program was built without NCCL",
                     "install NCCL and build again, or use one rank");
}

}  // namespace loratrain

#endif
