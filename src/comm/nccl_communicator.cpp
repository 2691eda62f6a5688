#include "comm/communicator.h"

#ifdef LORATRAIN_WITH_NCCL

#include <algorithm>
#include <array>
#include <chrono>
#include <deque>
#include <map>
#include <memory>
#include <thread>
#include <utility>
#include <vector>

#include "base/activity.h"
#include "base/error.h"
#include "base/log.h"
#include "comm/mpi_session.h"
#include "comm/nccl_check.h"
#include "comm/stream_flags.h"
#include "comm/tags.h"
#include "comm/waiting.h"

namespace loratrain {

namespace {

constexpr std::array channels{Channel::forward, Channel::backward, Channel::norms};
constexpr int polls_between_checks = 4096;
constexpr std::chrono::seconds longest_settling{5};
/// Multiprocessors of a message, lost to computation while it is under way and, where its ends have
/// no StreamFlags (different hosts), also while it waits for its other end. On four H200s without
/// StreamFlags two and four trained 4 and 5% faster than NCCL's own number.
constexpr int multiprocessors = 4;
/// Smaller sends end without their receiver, in NCCL's buffers: meeting would make them wait.
constexpr std::size_t smallest_meeting = std::size_t{4} << 20U;

const char* name_of(Channel channel) {
    switch (channel) {
        case Channel::forward:
            return "forward";
        case Channel::backward:
            return "backward";
        case Channel::norms:
            return "norms";
    }
    return "";
}

bool is_busy(cudaStream_t stream) {
    const cudaError_t state = cudaStreamQuery(stream);
    if (state == cudaSuccess) return false;
    static_cast<void>(cudaGetLastError());
    if (state != cudaErrorNotReady) check_cuda(state, "cudaStreamQuery");
    return true;
}

/// An event without timing.
class Event {
  public:
    Event() {
        check_cuda(cudaEventCreateWithFlags(&event_, cudaEventDisableTiming), "cudaEventCreate");
    }
    ~Event() { cudaEventDestroy(event_); }
    Event(const Event&) = delete;
    Event& operator=(const Event&) = delete;
    void record(cudaStream_t stream) {
        check_cuda(cudaEventRecord(event_, stream), "event record");
    }
    void block(cudaStream_t stream) const {
        check_cuda(cudaStreamWaitEvent(stream, event_, 0), "cudaStreamWaitEvent");
    }

  private:
    cudaEvent_t event_ = nullptr;
};

/// Events waiting for their next use.
class EventPool {
  public:
    std::unique_ptr<Event> take() {
        if (free_.empty()) return std::make_unique<Event>();
        std::unique_ptr<Event> event = std::move(free_.back());
        free_.pop_back();
        return event;
    }
    void give(std::unique_ptr<Event> event) {
        if (event) free_.push_back(std::move(event));
    }

  private:
    std::vector<std::unique_ptr<Event>> free_;
};

/// One direction between two ranks: a two-rank communicator with a stream of its own. The
/// constructor moves one byte from `sender` to the other rank: NCCL connects at the first message
/// and blocks the host for it, which must not happen while the other rank waits elsewhere.
class Link {
  public:
    Link(const ncclUniqueId& id, int place, bool sender) : peer_(1 - place), sender_(sender) {
        int least = 0;
        int greatest = 0;
        check_cuda(cudaDeviceGetStreamPriorityRange(&least, &greatest), "stream priorities");
        check_cuda(cudaStreamCreateWithPriority(&stream_, cudaStreamNonBlocking, greatest),
                   "cudaStreamCreate");
        ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
        config.maxCTAs = multiprocessors;
        check_nccl(ncclCommInitRankConfig(&comm_, 2, id, place, &config), "ncclCommInitRankConfig");
        void* byte = nullptr;
        check_cuda(cudaMalloc(&byte, 1), "cudaMalloc");
        sender ? send(byte, 1) : receive(byte, 1);
        check_cuda(cudaStreamSynchronize(stream_), "first message over NCCL");
        check_cuda(cudaFree(byte), "cudaFree");
    }
    ~Link() {
        // A stream that still waits reads its flags, and to take them away could block: left
        // behind.
        if (cudaStreamQuery(stream_) != cudaSuccess) static_cast<void>(flags_.release());
        ncclCommDestroy(comm_);
        cudaStreamDestroy(stream_);
    }
    Link(const Link&) = delete;
    Link& operator=(const Link&) = delete;
    cudaStream_t stream() const { return stream_; }
    bool is_sending() const { return sender_ && is_busy(stream_); }
    /// From now on messages start when both ends have come to them; null = when one has.
    void meet_with(std::unique_ptr<StreamFlags> flags) { flags_ = std::move(flags); }
    /// What NCCL found wrong meanwhile; null = nothing.
    const char* failure() const { return failure_of(comm_); }
    void send(const void* data, std::size_t bytes) {
        meet(bytes);
        check_nccl(ncclSend(data, bytes, ncclUint8, peer_, comm_, stream_), "ncclSend");
    }
    void receive(void* data, std::size_t bytes) {
        meet(bytes);
        check_nccl(ncclRecv(data, bytes, ncclUint8, peer_, comm_, stream_), "ncclRecv");
    }

  private:
    void meet(std::size_t bytes) {
        if (flags_ && bytes >= smallest_meeting) flags_->meet(stream_);
    }

    int peer_;
    bool sender_;
    ncclComm_t comm_ = nullptr;
    cudaStream_t stream_ = nullptr;
    std::unique_ptr<StreamFlags> flags_;
};

/// A receive from its announcement to the end of its use.
struct Receive {
    void* data = nullptr;
    std::size_t bytes = 0;
    MPI_Request token = MPI_REQUEST_NULL;  ///< arrives once the sender has queued its ncclSend
    std::unique_ptr<Event> ready;          ///< the buffer is free
    std::unique_ptr<Event> done;           ///< set when ncclRecv is queued
};

/// Receives of one link that wait for their token, in order.
struct Inbox {
    Link* link = nullptr;
    std::deque<std::shared_ptr<Receive>> waiting;
};

class NcclSend final : public Transfer {
  public:
    NcclSend(std::unique_ptr<Event> done, cudaStream_t compute, EventPool& pool)
        : done_(std::move(done)), compute_(compute), pool_(pool) {}
    ~NcclSend() override { pool_.give(std::move(done_)); }
    NcclSend(const NcclSend&) = delete;
    NcclSend& operator=(const NcclSend&) = delete;

    using Transfer::wait;
    void wait(const std::function<void()>& /*meanwhile*/) override {
        if (!done_) return;
        done_->block(compute_);
        pool_.give(std::move(done_));
    }

  private:
    std::unique_ptr<Event> done_;
    cudaStream_t compute_;
    EventPool& pool_;
};

class NcclCommunicator final : public Communicator {
  public:
    NcclCommunicator(const MpiSession& mpi, const std::vector<RankPair>& neighbours,
                     cudaStream_t compute)
        : rank_(mpi.rank()), compute_(compute) {
        MPI_CHECK(MPI_Comm_dup(mpi.comm(), &tokens_));
        for (const auto& [low, high] : neighbours) {
            if (rank_ == low) connect(mpi, high, true);
            if (rank_ == high) connect(mpi, low, false);
        }
    }
    ~NcclCommunicator() override { MPI_Comm_free(&tokens_); }
    NcclCommunicator(const NcclCommunicator&) = delete;
    NcclCommunicator& operator=(const NcclCommunicator&) = delete;

    std::unique_ptr<Transfer> send(const void* data, std::size_t bytes, int target,
                                   Channel channel) override {
        Link& link = *links_.at({target, channel});
        std::unique_ptr<Event> ready = pool_.take();
        ready->record(compute_);
        ready->block(link.stream());
        pool_.give(std::move(ready));
        link.send(data, bytes);
        std::unique_ptr<Event> done = pool_.take();
        done->record(link.stream());
        MPI_Request token = MPI_REQUEST_NULL;
        MPI_CHECK(
            MPI_Isend(nullptr, 0, MPI_BYTE, target, tags::nccl_token(channel), tokens_, &token));
        MPI_CHECK(MPI_Request_free(&token));
        queue_arrived();
        return std::make_unique<NcclSend>(std::move(done), compute_, pool_);
    }

    std::unique_ptr<Transfer> receive(void* data, std::size_t bytes, int source,
                                      Channel channel) override;

    /// Makes later compute wait for a receive; waits for its token on the host where needed.
    void finish(Receive& receive, const std::function<void()>& meanwhile) {
        queue_arrived();
        if (!receive.done) wait_until([&] { return receive.done != nullptr; }, meanwhile);
        receive.done->block(compute_);
        pool_.give(std::move(receive.ready));
        pool_.give(std::move(receive.done));
    }

    void settle(const std::function<void()>& meanwhile) override {
        const auto end = std::chrono::steady_clock::now() + longest_settling;
        const auto is_late = [&] { return std::chrono::steady_clock::now() > end; };
        const auto settled = [&] { return !sends_under_way() && !is_busy(compute_); };
        wait_until([&] { return settled() || is_late(); }, meanwhile);
        if (is_late()) {
            log::info(cat("rank ", rank_, " waited ", longest_settling.count(),
                          " s for its messages and its GPU; it goes on while they are under way"));
        }
    }

    void progress() override { queue_arrived(); }

    void check() override {
        for (const auto& [key, link] : links_) {
            if (const char* failure = link->failure()) {
                throw Error(cat("the NCCL link between ranks ", rank_, " and ", key.first,
                                ", channel ", name_of(key.second), ", failed: ", failure,
                                "; NCCL_DEBUG=INFO makes NCCL say why"));
            }
        }
    }

  private:
    void connect(const MpiSession& mpi, int neighbour, bool is_low) {
        for (const Channel channel : channels) {
            ncclUniqueId id{};
            if (is_low) {
                check_nccl(ncclGetUniqueId(&id), "ncclGetUniqueId");
                MPI_CHECK(
                    MPI_Send(&id, sizeof(id), MPI_BYTE, neighbour, tags::nccl_id, mpi.comm()));
            } else {
                MPI_CHECK(MPI_Recv(&id, sizeof(id), MPI_BYTE, neighbour, tags::nccl_id, mpi.comm(),
                                   MPI_STATUS_IGNORE));
            }
            const bool sender = is_low == (channel != Channel::backward);
            auto& link = links_[{neighbour, channel}];
            link = std::make_unique<Link>(id, is_low ? 0 : 1, sender);
            if (mpi.hosts()[static_cast<std::size_t>(neighbour)] == mpi.host()) {
                link->meet_with(StreamFlags::connect(mpi, neighbour, link->stream()));
            }
            inboxes_[{neighbour, channel}].link = link.get();
        }
    }

    bool sends_under_way() const {
        return std::any_of(links_.begin(), links_.end(),
                           [](const auto& entry) { return entry.second->is_sending(); });
    }

    /// Meanwhile receives are queued as their tokens arrive.
    template <class Condition>
    void wait_until(const Condition& holds, const std::function<void()>& meanwhile) {
        const activity::Waiting waiting;
        for (int polls = 1; !holds(); ++polls) {
            if (polls % polls_between_checks == 0) check();
            std::this_thread::yield();
            work_while_waiting();
            if (meanwhile) meanwhile();
            queue_arrived();
        }
    }

    void queue_arrived() {
        for (auto& [key, inbox] : inboxes_) {
            while (!inbox.waiting.empty()) {
                int arrived = 0;
                MPI_CHECK(MPI_Test(&inbox.waiting.front()->token, &arrived, MPI_STATUS_IGNORE));
                if (arrived == 0) break;
                queue_front(inbox);
            }
        }
    }

    void queue_front(Inbox& inbox) {
        Receive& receive = *inbox.waiting.front();
        receive.ready->block(inbox.link->stream());
        inbox.link->receive(receive.data, receive.bytes);
        receive.done = pool_.take();
        receive.done->record(inbox.link->stream());
        inbox.waiting.pop_front();
    }

    int rank_;
    cudaStream_t compute_;
    MPI_Comm tokens_ = MPI_COMM_NULL;
    EventPool pool_;
    std::map<std::pair<int, Channel>, std::unique_ptr<Link>> links_;
    std::map<std::pair<int, Channel>, Inbox> inboxes_;
};

class NcclReceive final : public Transfer {
  public:
    NcclReceive(NcclCommunicator& owner, std::shared_ptr<Receive> receive)
        : owner_(owner), receive_(std::move(receive)) {}

    using Transfer::wait;
    void wait(const std::function<void()>& meanwhile) override {
        if (receive_) owner_.finish(*receive_, meanwhile);
        receive_.reset();
    }

  private:
    NcclCommunicator& owner_;
    std::shared_ptr<Receive> receive_;
};

std::unique_ptr<Transfer> NcclCommunicator::receive(void* data, std::size_t bytes, int source,
                                                    Channel channel) {
    auto receive = std::make_shared<Receive>();
    receive->data = data;
    receive->bytes = bytes;
    receive->ready = pool_.take();
    receive->ready->record(compute_);
    MPI_CHECK(MPI_Irecv(nullptr, 0, MPI_BYTE, source, tags::nccl_token(channel), tokens_,
                        &receive->token));
    inboxes_.at({source, channel}).waiting.push_back(receive);
    queue_arrived();
    return std::make_unique<NcclReceive>(*this, std::move(receive));
}

}  // namespace

std::unique_ptr<Communicator> make_nccl_communicator(const MpiSession& mpi,
                                                     const std::vector<RankPair>& neighbours,
                                                     void* compute_stream) {
    return std::make_unique<NcclCommunicator>(mpi, neighbours,
                                              static_cast<cudaStream_t>(compute_stream));
}

std::string nccl_version() {
    int version = 0;
    if (ncclGetVersion(&version) != ncclSuccess) return "unknown";
    return cat(version / 10000, ".", version / 100 % 100, ".", version % 100);
}

}  // namespace loratrain

#else

namespace loratrain {

std::unique_ptr<Communicator> make_nccl_communicator(const MpiSession& /*mpi*/,
                                                     const std::vector<RankPair>& /*neighbours*/,
                                                     void* /*compute_stream*/) {
    throw InputError("run.backend",
                     "several GPUs need NCCL, but this program was built without NCCL",
                     "install NCCL and build again, or use one rank");
}

std::string nccl_version() {
    return "";
}

}  // namespace loratrain

#endif
