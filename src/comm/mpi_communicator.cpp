#include <algorithm>
#include <chrono>
#include <thread>
#include <vector>

#include "base/activity.h"
#include "base/threads.h"
#include "comm/communicator.h"
#include "comm/host_link.h"
#include "comm/mpi_session.h"
#include "comm/tags.h"
#include "comm/waiting.h"

namespace loratrain {

namespace {

constexpr std::size_t largest_piece = 1U << 30U;
constexpr std::chrono::microseconds between_looks{50};

/// What moves without MPI, and how ranks wait.
class HostLinks {
  public:
    HostLinks(const MpiSession& mpi, MPI_Comm comm, const std::vector<RankPair>& neighbours,
              std::size_t link_room, const ByteCopy& copy)
        : comm_(comm), quiet_(threads_per_rank(mpi) * mpi.host_size() > mpi.host_processors()) {
        for (const auto& [low, high] : neighbours) {
            if (mpi.rank() != low && mpi.rank() != high) continue;
            auto link = HostLink::connect(mpi, low + high - mpi.rank(), link_room, copy);
            if (link) links_.push_back(std::move(link));
        }
    }

    /// Null where MPI carries what goes that way.
    HostLink* sender_to(int peer, Channel channel) const {
        HostLink* link = link_with(peer);
        return link != nullptr && link->sends(channel) ? link : nullptr;
    }
    HostLink* receiver_from(int peer, Channel channel) const {
        HostLink* link = link_with(peer);
        return link != nullptr && link->receives(channel) ? link : nullptr;
    }

    void advance() const {
        for (const auto& link : links_) link->advance();
    }

    std::size_t bytes() const {
        std::size_t sum = 0;
        for (const auto& link : links_) sum += link->bytes();
        return sum;
    }

    void wait(std::vector<MPI_Request>& requests, const std::function<void()>& meanwhile) const {
        if (links_.empty() && !meanwhile) {
            return wait_for(requests, quiet_ || has_background_work(), between_looks);
        }
        wait_until([&] { return are_done(requests); }, meanwhile);
    }

    /// While messages between others need this rank, over MPI too.
    void wait(const HostLink::Message& message, const std::function<void()>& meanwhile) const {
        const auto done = [&] {
            if (message.is_done()) return true;
            int any = 0;
            MPI_CHECK(MPI_Iprobe(MPI_ANY_SOURCE, MPI_ANY_TAG, comm_, &any, MPI_STATUS_IGNORE));
            return false;
        };
        wait_until(done, meanwhile);
    }

  private:
    HostLink* link_with(int peer) const {
        const auto found = std::find_if(links_.begin(), links_.end(),
                                        [&](const auto& link) { return link->peer() == peer; });
        return found == links_.end() ? nullptr : found->get();
    }

    template <class Done>
    void wait_until(const Done& done, const std::function<void()>& meanwhile) const {
        for (advance(); !done(); advance()) {
            work_while_waiting();
            if (meanwhile) meanwhile();
            if (quiet_ || has_background_work()) std::this_thread::sleep_for(between_looks);
        }
    }

    MPI_Comm comm_;
    bool quiet_;
    std::vector<std::unique_ptr<HostLink>> links_;
};

class MpiTransfer final : public Transfer {
  public:
    MpiTransfer(std::vector<MPI_Request> requests, const HostLinks& links)
        : requests_(std::move(requests)), links_(links) {}

    using Transfer::wait;
    void wait(const std::function<void()>& meanwhile) override {
        if (requests_.empty()) return;
        const activity::Waiting waiting;
        links_.wait(requests_, meanwhile);
        requests_.clear();
    }

  private:
    std::vector<MPI_Request> requests_;
    const HostLinks& links_;
};

class HostTransfer final : public Transfer {
  public:
    HostTransfer(std::shared_ptr<const HostLink::Message> message, const HostLinks& links)
        : message_(std::move(message)), links_(links) {}

    using Transfer::wait;
    void wait(const std::function<void()>& meanwhile) override {
        if (message_->is_done()) return;
        const activity::Waiting waiting;
        links_.wait(*message_, meanwhile);
    }

  private:
    std::shared_ptr<const HostLink::Message> message_;
    const HostLinks& links_;
};

/// Calls post(offset, count) for consecutive pieces whose byte count fits an int.
template <class Post>
std::unique_ptr<Transfer> in_pieces(std::size_t bytes, const HostLinks& links, Post post) {
    std::vector<MPI_Request> requests;
    std::size_t at = 0;
    do {
        const std::size_t count = std::min(largest_piece, bytes - at);
        requests.push_back(post(at, static_cast<int>(count)));
        at += count;
    } while (at < bytes);
    return std::make_unique<MpiTransfer>(std::move(requests), links);
}

/// Where the ranks of a host are more than its processors, who waits leaves them to the others; a
/// rank with work in the background leaves them to that.
class MpiCommunicator final : public Communicator {
  public:
    MpiCommunicator(const MpiSession& mpi, const std::vector<RankPair>& neighbours,
                    std::size_t link_room, const ByteCopy& copy)
        : comm_(copy_of(mpi.comm())), links_(mpi, comm_, neighbours, link_room, copy) {}
    ~MpiCommunicator() override { MPI_Comm_free(&comm_); }
    MpiCommunicator(const MpiCommunicator&) = delete;
    MpiCommunicator& operator=(const MpiCommunicator&) = delete;

    std::unique_ptr<Transfer> send(const void* data, std::size_t bytes, int target,
                                   Channel channel) override {
        if (HostLink* link = links_.sender_to(target, channel)) {
            return std::make_unique<HostTransfer>(link->send(data, bytes, channel), links_);
        }
        return in_pieces(bytes, links_, [&](std::size_t at, int count) {
            MPI_Request request = MPI_REQUEST_NULL;
            MPI_CHECK(MPI_Isend(static_cast<const char*>(data) + at, count, MPI_BYTE, target,
                                tags::pipeline(channel), comm_, &request));
            return request;
        });
    }

    std::unique_ptr<Transfer> receive(void* data, std::size_t bytes, int source,
                                      Channel channel) override {
        if (HostLink* link = links_.receiver_from(source, channel)) {
            return std::make_unique<HostTransfer>(link->receive(data, bytes, channel), links_);
        }
        return in_pieces(bytes, links_, [&](std::size_t at, int count) {
            MPI_Request request = MPI_REQUEST_NULL;
            MPI_CHECK(MPI_Irecv(static_cast<char*>(data) + at, count, MPI_BYTE, source,
                                tags::pipeline(channel), comm_, &request));
            return request;
        });
    }

    void progress() override { links_.advance(); }
    std::size_t bytes() const override { return links_.bytes(); }

  private:
    static MPI_Comm copy_of(MPI_Comm comm) {
        MPI_Comm copy = MPI_COMM_NULL;
        MPI_CHECK(MPI_Comm_dup(comm, &copy));
        return copy;
    }

    MPI_Comm comm_;
    HostLinks links_;
};

}  // namespace

std::unique_ptr<Communicator> make_mpi_communicator(const MpiSession& mpi,
                                                    const std::vector<RankPair>& neighbours,
                                                    std::size_t link_room, const ByteCopy& copy) {
    return std::make_unique<MpiCommunicator>(mpi, neighbours, link_room, copy);
}

}  // namespace loratrain
