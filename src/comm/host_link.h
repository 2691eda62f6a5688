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

/// Messages between two neighbouring stages on one host, through memory that both share: what is
/// sent lies there for the other, whatever the two do. MPI without direct copies between processes
/// (containers forbid them) moves a large message only while both ends are inside MPI, so that one
/// waits until the other has computed something else.
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
        bool started_ = false;  ///< its length has been written, or read
    };

    /// With `room` bytes each way, or less where so much shared memory cannot be had; null on both
    /// ranks where there is none. Messages may be larger. `copy`: as ByteRing takes it. Collective
    /// over this rank and `peer`.
    static std::unique_ptr<HostLink> connect(const MpiSession& mpi, int peer, std::size_t room,
                                             const ByteCopy& copy = {});

    int peer() const { return peer_; }
    std::size_t bytes() const { return memory_->bytes(); }
    /// Whether what this rank sends, or receives, over the channel goes this way: the lower rank is
    /// the stage before.
    bool sends(Channel channel) const;
    bool receives(Channel channel) const { return !sends(channel); }

    /// The data stay in place until the message is done. Messages of a channel are received in the
    /// order sent, with the lengths that they were sent with (else Error, here or in advance()).
    std::shared_ptr<const Message> send(const void* data, std::size_t bytes, Channel channel);
    std::shared_ptr<const Message> receive(void* data, std::size_t bytes, Channel channel);

    /// Moves what can be moved now; whether anything was.
    bool advance();

  private:
    struct ChannelState {
        ByteRing ring;
        bool sends;
        std::deque<std::shared_ptr<Message>> queue;
    };
    /// Bytes that the rings of channels hold.
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
