#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>

#include "base/ids.h"
#include "comm/byte_ring.h"
#include "comm/mpi_session.h"
#include "comm/shared_memory.h"

namespace loratrain {

/// Messages between two neighbouring stages on one host, through memory that both share. A message
/// lies there until the receiver takes it, whatever the two ranks do meanwhile. (MPI without direct
/// copies between processes, which containers forbid, moves a large message only while both ranks
/// are inside MPI, so that one waits while the other computes.)
class HostLink {
  public:
    /// A message under way.
    class Message {
      public:
        Message(void* data, std::size_t bytes) : data_(static_cast<char*>(data)), left_(bytes) {}
        bool is_done() const { return started_ && left_ == 0; }

      private:
        friend class HostLink;
        char* data_;
        std::size_t left_;
        bool started_ = false;  ///< the length has been written, or read
    };

    /// A link with `room` bytes each way, or less if the system has less shared memory; null on
    /// both ranks if it has none. Messages may be larger. `copy`: as for ByteRing. Collective over
    /// this rank and `peer`.
    static std::unique_ptr<HostLink> connect(const MpiSession& mpi, int peer, std::size_t room,
                                             const ByteCopy& copy = {});

    int peer() const { return peer_; }
    std::size_t bytes() const { return memory_->bytes(); }
    /// True if this rank is the sender, or the receiver, of the channel. The lower rank is the
    /// stage before.
    bool sends(Channel channel) const;
    bool receives(Channel channel) const { return !sends(channel); }

    /// The data must stay in place until the message is done. Messages of a channel are received in
    /// the order in which they were sent, with the same lengths; otherwise this or advance() throws
    /// Error.
    std::shared_ptr<const Message> send(const void* data, std::size_t bytes, Channel channel);
    std::shared_ptr<const Message> receive(void* data, std::size_t bytes, Channel channel);

    /// Moves the bytes that can be moved now; true if there were any.
    bool advance();

  private:
    struct ChannelState {
        ByteRing ring;
        bool sends;
        std::deque<std::shared_ptr<Message>> queue;
    };
    /// Capacity in bytes of each channel's ring.
    using Capacities = std::array<std::size_t, 3>;

    HostLink(std::unique_ptr<SharedMemory> memory, const Capacities& capacities, int peer,
             bool is_lower, const ByteCopy& copy);
    static Capacities capacities_for(std::size_t room);
    static std::size_t bytes_for(const Capacities& capacities);

    std::shared_ptr<const Message> add(Channel channel, Message message);
    bool advance(ChannelState& state);
    static bool start(ChannelState& state, Message& message);

    std::unique_ptr<SharedMemory> memory_;
    int peer_;
    bool is_lower_;
    std::deque<ChannelState> channels_;  ///< by channel
};

}  // namespace loratrain
