#include "comm/host_link.h"

#include <algorithm>

#include "base/error.h"

namespace loratrain {

namespace {

constexpr std::size_t smallest_ring = std::size_t{4} << 10U;
constexpr std::size_t smaller_by = 4;  ///< than what shared memory did not suffice for

bool goes_up(Channel channel) {
    return channel != Channel::backward;
}

}  // namespace

HostLink::Capacities HostLink::capacities_for(std::size_t room) {
    Capacities capacities{};
    capacities.fill(std::max(room, smallest_ring));
    capacities[static_cast<std::size_t>(Channel::norms)] = smallest_ring;
    return capacities;
}

std::size_t HostLink::bytes_for(const Capacities& capacities) {
    std::size_t bytes = 0;
    for (const std::size_t capacity : capacities) bytes += ByteRing::bytes_for(capacity);
    return bytes;
}

std::unique_ptr<HostLink> HostLink::connect(const MpiSession& mpi, int peer, std::size_t room,
                                            const ByteCopy& copy) {
    const auto& hosts = mpi.hosts();
    if (hosts[static_cast<std::size_t>(peer)] != mpi.host()) return nullptr;
    for (;; room /= smaller_by) {
        const Capacities capacities = capacities_for(room);
        auto memory = SharedMemory::connect(mpi, peer, bytes_for(capacities));
        if (memory) {
            return std::unique_ptr<HostLink>(
                new HostLink(std::move(memory), capacities, peer, mpi.rank() < peer, copy));
        }
        if (room <= smallest_ring) return nullptr;
    }
}

HostLink::HostLink(std::unique_ptr<SharedMemory> memory, const Capacities& capacities, int peer,
                   bool is_lower, const ByteCopy& copy)
    : memory_(std::move(memory)), peer_(peer), is_lower_(is_lower) {
    auto* place = static_cast<char*>(memory_->data());
    for (std::size_t c = 0; c < capacities.size(); ++c) {
        channels_.push_back({ByteRing(place, capacities[c], copy),
                             goes_up(static_cast<Channel>(c)) == is_lower,
                             {}});
        place += ByteRing::bytes_for(capacities[c]);
    }
}

bool HostLink::sends(Channel channel) const {
    return goes_up(channel) == is_lower_;
}

std::shared_ptr<const HostLink::Message> HostLink::send(const void* data, std::size_t bytes,
                                                        Channel channel) {
    // Of a channel that sends, a message is only read.
    return add(channel, Message(const_cast<void*>(data), bytes));  // NOLINT(*-const-cast)
}

std::shared_ptr<const HostLink::Message> HostLink::receive(void* data, std::size_t bytes,
                                                           Channel channel) {
    return add(channel, Message(data, bytes));
}

std::shared_ptr<const HostLink::Message> HostLink::add(Channel channel, Message message) {
    ChannelState& state = channels_[static_cast<std::size_t>(channel)];
    const auto added = std::make_shared<Message>(message);
    state.queue.push_back(added);
    advance(state);
    return added;
}

bool HostLink::advance() {
    bool moved = false;
    for (ChannelState& state : channels_) moved = advance(state) || moved;
    return moved;
}

bool HostLink::advance(ChannelState& state) {
    bool moved = false;
    while (!state.queue.empty()) {
        Message& message = *state.queue.front();
        if (!message.started_ && !start(state, message)) return moved;
        const std::size_t count = state.sends ? state.ring.write(message.data_, message.left_)
                                              : state.ring.read(message.data_, message.left_);
        message.data_ += count;
        message.left_ -= count;
        moved = moved || count > 0;
        if (message.left_ > 0) return moved;
        state.queue.pop_front();
        moved = true;
    }
    return moved;
}

/// A message begins with its length.
bool HostLink::start(ChannelState& state, Message& message) {
    std::uint64_t length = message.left_;
    if (state.sends) {
        if (state.ring.room() < sizeof(length)) return false;
        state.ring.write(&length, sizeof(length));
    } else {
        if (state.ring.filled() < sizeof(length)) return false;
        state.ring.read(&length, sizeof(length));
        LORATRAIN_CHECK(length == message.left_, "a message of ", length, " bytes where ",
                        message.left_, " were expected");
    }
    message.started_ = true;
    return true;
}

}  // namespace loratrain
