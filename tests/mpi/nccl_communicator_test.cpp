#include "comm/communicator.h"

#include <chrono>
#include <iostream>
#include <numeric>
#include <thread>

#include "backend/make_backend.h"
#include "base/system.h"
#include "comm/rank_groups.h"
#include "measure/profile_links.h"
#include "mpi/gpu_ranks.h"
#include "mpi/mpi_main.h"

namespace loratrain::mpi_test {
namespace {

constexpr std::size_t small_count = 1000;                   // such messages end in NCCL's buffers
constexpr std::size_t large_count = std::size_t{4} << 20U;  // these wait for their receivers

std::vector<std::int32_t> numbers(std::size_t count, int first) {
    std::vector<std::int32_t> values(count);
    std::iota(values.begin(), values.end(), first);
    return values;
}

/// Ranks in a row, each with a GPU. Skipped where there are fewer GPUs, unless ranks may share
/// them.
class Row : public ::testing::Test {
  protected:
    void SetUp() override {
        if (too_few_gpus()) GTEST_SKIP() << "too few GPUs";
        backend_ = make_backend("cuda", {1, session().host_rank(), DType::f32});
        communicator_ = make_nccl_communicator(session(), row(), backend_->native_stream());
    }

    static std::vector<RankPair> row() {
        std::vector<RankPair> neighbours;
        for (int low = 0; low + 1 < session().size(); ++low) neighbours.emplace_back(low, low + 1);
        return neighbours;
    }

    static bool has_below() { return session().rank() > 0; }
    static bool has_above() { return session().rank() + 1 < session().size(); }
    static int below() { return session().rank() - 1; }
    static int above() { return session().rank() + 1; }

    Buffer on_device(const std::vector<std::int32_t>& values) {
        Buffer buffer = backend_->allocate(values.size() * sizeof(std::int32_t), "test");
        backend_->upload(buffer.data(), values.data(), buffer.bytes());
        backend_->synchronize();
        return buffer;
    }

    std::vector<std::int32_t> on_host(const Buffer& buffer) {
        std::vector<std::int32_t> values(buffer.bytes() / sizeof(std::int32_t));
        backend_->download(values.data(), buffer.data(), buffer.bytes());
        backend_->synchronize();
        return values;
    }

    auto send(const Buffer& buffer, int target, Channel channel) {
        return communicator_->send(buffer.data(), buffer.bytes(), target, channel);
    }

    auto receive(const Buffer& buffer, int source, Channel channel) {
        return communicator_->receive(buffer.data(), buffer.bytes(), source, channel);
    }

    /// For which the driver waits for the whole device.
    void free_something() { backend_->allocate(1, "test"); }

    std::unique_ptr<Backend> backend_;
    std::unique_ptr<Communicator> communicator_;
};

TEST_F(Row, LinksAreMeasured) {
    const auto links =
        profile_links(session(), row(), std::size_t{4} << 20U, *communicator_, *backend_);
    ASSERT_EQ(links.size(), row().size());
    for (const LinkBetweenHosts& link : links) {
        EXPECT_GT(link.cost.fixed, 1e-6);
        EXPECT_LT(link.cost.fixed, 1e-2);
        EXPECT_GT(link.cost.per_byte, 1e-13);
        EXPECT_LT(link.cost.per_byte, 1e-6);
    }
    std::cout << links_text(links) << "\n";
}

TEST_F(Row, MessagesOfAChannelArriveInOrder) {
    constexpr int count = 12;
    std::vector<Buffer> buffers;
    std::vector<std::unique_ptr<Transfer>> transfers;
    const auto values = [](int rank, int message) {
        return numbers(message % 3 == 1 ? large_count : small_count, rank + 10 * message);
    };
    for (int i = 0; i < count && has_above(); ++i) {
        buffers.push_back(on_device(values(session().rank(), i)));
        transfers.push_back(send(buffers.back(), above(), Channel::forward));
    }
    const std::size_t sent = buffers.size();
    for (int i = 0; i < count && has_below(); ++i) {
        buffers.push_back(on_device(std::vector<std::int32_t>(values(0, i).size(), -1)));
        transfers.push_back(receive(buffers.back(), below(), Channel::forward));
    }
    for (auto& transfer : transfers) transfer->wait();
    for (std::size_t i = sent; i < buffers.size(); ++i) {
        EXPECT_EQ(on_host(buffers[i]), values(below(), static_cast<int>(i - sent))) << i;
    }
}

TEST_F(Row, NeighboursThatWaitForTheirDevicesAfterSettling) {
    const std::vector<std::int32_t> mine = numbers(large_count, session().rank());
    for (int round = 0; round < 3; ++round) {
        const Buffer sent = on_device(mine);
        const Buffer from_below = on_device(std::vector<std::int32_t>(large_count, -1));
        const Buffer from_above = on_device(std::vector<std::int32_t>(large_count, -1));
        std::vector<std::unique_ptr<Transfer>> transfers;
        if (has_below()) transfers.push_back(receive(from_below, below(), Channel::forward));
        if (has_above()) transfers.push_back(receive(from_above, above(), Channel::backward));
        if (has_above()) transfers.push_back(send(sent, above(), Channel::forward));
        if (has_below()) transfers.push_back(send(sent, below(), Channel::backward));
        communicator_->settle({});
        free_something();
        for (auto& transfer : transfers) transfer->wait();
        if (has_below()) {
            EXPECT_EQ(on_host(from_below), numbers(large_count, below()));
        }
        if (has_above()) {
            EXPECT_EQ(on_host(from_above), numbers(large_count, above()));
        }
    }
}

TEST_F(Row, SettlingWaitsForALateReceiver) {
    const Buffer buffer = on_device(numbers(large_count, session().rank()));
    const auto now = [] { return static_cast<std::uint64_t>(1e6 * unix_time()); };
    std::uint64_t moment = 0;
    barrier(session());
    if (session().rank() == 0 && has_above()) {
        const auto transfer = send(buffer, above(), Channel::forward);
        int calls = 0;
        communicator_->settle([&] { ++calls; });
        moment = now();
        EXPECT_GT(calls, 0);
        free_something();
        transfer->wait();
    }
    if (session().rank() == 1) {
        std::this_thread::sleep_for(std::chrono::milliseconds(300));
        moment = now();
        receive(buffer, below(), Channel::forward)->wait();
        EXPECT_EQ(on_host(buffer), numbers(large_count, 0));
    }
    const std::vector<std::uint64_t> moments = gather_numbers(session(), moment);
    if (has_above() || has_below()) {
        EXPECT_GE(moments[0], moments[1]);
    }
}

TEST_F(Row, SettlingEndsWhereNobodyReceives) {
    const Buffer buffer = on_device(numbers(large_count, session().rank()));
    std::unique_ptr<Transfer> transfer;
    if (session().rank() == 0 && has_above()) {
        transfer = send(buffer, above(), Channel::forward);
        communicator_->settle({});
    }
    barrier(session());
    if (session().rank() == 1) {
        receive(buffer, below(), Channel::forward)->wait();
        EXPECT_EQ(on_host(buffer), numbers(large_count, 0));
    }
    if (transfer) transfer->wait();
    backend_->synchronize();
}

/// Two stages of two lanes: each stage's first lane sums before what waits for its device, the
/// other lane sums after it and has a message under way that the first lane of the other stage
/// receives for the sum to be reached.
TEST_F(Row, LanesSettleAtDifferentPlaces) {
    if (session().size() != 4) return;
    const int rank = session().rank();
    const int peer = (rank + 2) % 4;
    const bool is_ahead = rank == 0 || rank == 3;
    const auto stages =
        make_nccl_communicator(session(), {{0, 2}, {1, 3}}, backend_->native_stream());
    const auto lanes = make_nccl_rank_group(session(), rank / 2, backend_->native_stream());
    const Channel channel = rank % 2 == 0 ? Channel::backward : Channel::forward;
    const Buffer message = on_device(numbers(large_count, rank));
    const Buffer summed = on_device(numbers(small_count, 0));
    const auto sum = [&] {
        const auto count = static_cast<std::int64_t>(small_count);
        lanes->all_reduce({summed.data(), DType::f32, 1, count, count});
    };
    barrier(session());
    const auto begin = std::chrono::steady_clock::now();
    std::unique_ptr<Transfer> transfer;
    if (is_ahead) {
        transfer = stages->receive(message.data(), message.bytes(), peer, channel);
        sum();
    } else {
        std::this_thread::sleep_for(std::chrono::milliseconds(100));
        transfer = stages->send(message.data(), message.bytes(), peer, channel);
    }
    stages->settle({});
    free_something();
    if (!is_ahead) sum();
    transfer->wait();
    backend_->synchronize();
    const std::chrono::duration<double> passed = std::chrono::steady_clock::now() - begin;
    EXPECT_LT(passed.count(), 4.0) << "none of them waited in vain";
    if (is_ahead) {
        EXPECT_EQ(on_host(message), numbers(large_count, peer));
    }
}

TEST_F(Row, NothingToSettle) {
    int calls = 0;
    communicator_->settle([&] { ++calls; });
    EXPECT_EQ(calls, 0);
}

}  // namespace
}  // namespace loratrain::mpi_test
