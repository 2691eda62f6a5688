#include "comm/host_link.h"

#include <algorithm>
#include <array>
#include <numeric>
#include <thread>
#include <vector>

#include "base/error.h"
#include "mpi/mpi_main.h"

namespace loratrain::mpi_test {
namespace {

std::vector<char> some_bytes(std::size_t count, int first) {
    std::vector<char> bytes(count);
    std::iota(bytes.begin(), bytes.end(), static_cast<char>(first));
    return bytes;
}

TEST(ByteRing, KeepsBytesInOrderWhenTheyGoAround) {
    constexpr std::size_t capacity = 100;
    alignas(64) std::array<char, 256> memory{};
    ASSERT_LE(ByteRing::bytes_for(capacity), memory.size());
    ByteRing writer(memory.data(), capacity);
    ByteRing reader(memory.data(), capacity);
    EXPECT_EQ(writer.room(), capacity);
    EXPECT_EQ(reader.filled(), 0U);
    const std::vector<char> sent = some_bytes(1000, 3);
    std::vector<char> received(sent.size());
    std::size_t in = 0;
    std::size_t out = 0;
    for (std::size_t step = 1; out < sent.size(); step = step % 37 + 1) {
        in += writer.write(sent.data() + in, std::min(3 * step, sent.size() - in));
        EXPECT_LE(in - out, capacity);
        EXPECT_EQ(reader.filled(), in - out);
        out += reader.read(received.data() + out, 2 * step);
        EXPECT_EQ(writer.room(), capacity - (in - out));
    }
    EXPECT_EQ(received, sent);
    EXPECT_EQ(reader.read(received.data(), 1), 0U);
}

TEST(ByteRing, BetweenThreads) {
    constexpr std::size_t capacity = 1000;
    alignas(64) std::array<char, 2048> memory{};
    const std::vector<char> sent = some_bytes(std::size_t{1} << 20U, 0);
    std::thread writer([&] {
        ByteRing ring(memory.data(), capacity);
        for (std::size_t at = 0; at < sent.size();) {
            at += ring.write(sent.data() + at, std::min<std::size_t>(777, sent.size() - at));
        }
    });
    std::vector<char> received(sent.size());
    ByteRing ring(memory.data(), capacity);
    for (std::size_t at = 0; at < received.size();) {
        at += ring.read(received.data() + at, received.size() - at);
    }
    writer.join();
    EXPECT_EQ(received, sent);
}

/// Between ranks 0 and 1; null on others.
std::unique_ptr<HostLink> connect_first(std::size_t room) {
    if (session().rank() > 1) return nullptr;
    return HostLink::connect(session(), 1 - session().rank(), room);
}

TEST(HostLink, GoesUpAndDown) {
    const auto link = connect_first(100);
    if (session().rank() > 1) return;
    ASSERT_NE(link, nullptr);
    EXPECT_EQ(link->peer(), 1 - session().rank());
    const bool lower = session().rank() == 0;
    for (const Channel channel : {Channel::forward, Channel::norms}) {
        EXPECT_EQ(link->sends(channel), lower);
        EXPECT_EQ(link->receives(channel), !lower);
    }
    EXPECT_EQ(link->sends(Channel::backward), !lower);
}

/// What MPI may leave where it is until the sender calls it again.
TEST(HostLink, MessageArrivesWhileItsSenderDoesSomethingElse) {
    constexpr std::size_t largest = std::size_t{1} << 20U;
    const auto link = connect_first(2 * largest);
    const std::vector<char> sent = some_bytes(largest, 1);
    if (session().rank() == 0) {
        EXPECT_TRUE(link->send(sent.data(), largest, Channel::forward)->is_done());
        EXPECT_TRUE(link->send(sent.data(), largest / 2, Channel::forward)->is_done());
    }
    barrier(session());
    if (session().rank() == 1) {
        std::vector<char> received(largest);
        EXPECT_TRUE(link->receive(received.data(), largest, Channel::forward)->is_done());
        EXPECT_EQ(received, sent);
        EXPECT_TRUE(link->receive(received.data(), largest / 2, Channel::forward)->is_done());
    }
    barrier(session());
}

TEST(HostLink, OtherLengthsAreErrors) {
    const auto link = connect_first(100);
    const std::vector<char> sent = some_bytes(100, 1);
    if (session().rank() == 0) link->send(sent.data(), 60, Channel::norms);
    barrier(session());
    if (session().rank() == 1) {
        std::vector<char> received(100);
        EXPECT_THROW(link->receive(received.data(), 61, Channel::norms), Error);
    }
    barrier(session());
}

}  // namespace
}  // namespace loratrain::mpi_test
