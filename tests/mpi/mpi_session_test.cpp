#include "comm/mpi_session.h"

#include <filesystem>
#include <fstream>
#include <map>
#include <numeric>
#include <thread>

#include "base/error.h"
#include "comm/command_channel.h"
#include "comm/communicator.h"
#include "mpi/mpi_main.h"
#include "mpi/shared_temp_dir.h"

namespace loratrain::mpi_test {
namespace {

/// Two sessions, of the first ranks and of the others, which do at the same time the same with
/// different contents and counts.
class TwoSessions : public ::testing::TestWithParam<int> {
  protected:
    bool in_first() const { return session().rank() < GetParam(); }
    int color() const { return in_first() ? 0 : 1; }
    /// This rank's number in its session.
    int number() const { return in_first() ? session().rank() : session().rank() - GetParam(); }
    int count() const { return in_first() ? GetParam() : session().size() - GetParam(); }
    std::string text(int rank) const { return std::string(100U + 70000U * color(), 'a' + rank); }

    MpiSession mine_ = session().split(color());
};

TEST_P(TwoSessions, CountTheirOwnRanks) {
    EXPECT_EQ(mine_.rank(), number());
    EXPECT_EQ(mine_.size(), count());
    EXPECT_EQ(mine_.is_root(), number() == 0);
    EXPECT_EQ(mine_.hosts(),
              std::vector<std::string>(static_cast<std::size_t>(count()), session().host()));
    EXPECT_EQ(mine_.host(), session().host());
}

TEST_P(TwoSessions, ShareTheirHost) {
    EXPECT_EQ(mine_.local_rank(), number());
    EXPECT_EQ(mine_.local_size(), count());
    EXPECT_EQ(mine_.host_rank(), session().local_rank());
    EXPECT_EQ(mine_.host_size(), session().local_size());
    EXPECT_EQ(mine_.host_processors(), session().host_processors());
    EXPECT_EQ(threads_per_rank(mine_), threads_per_rank(session()));
}

TEST_P(TwoSessions, OfTwoSessions) {
    const MpiSession reversed = mine_.split(0, -mine_.rank());
    EXPECT_EQ(reversed.rank(), count() - 1 - number());
    const MpiSession alone = reversed.split(reversed.rank());
    EXPECT_EQ(alone.size(), 1);
    EXPECT_EQ(gather_numbers(alone, std::uint64_t{7}), std::vector<std::uint64_t>{7});
}

TEST_P(TwoSessions, GatherTheirOwn) {
    const auto texts = gather_texts(mine_, text(number()));
    ASSERT_EQ(texts.size(), static_cast<std::size_t>(count()));
    for (int r = 0; r < count(); ++r) EXPECT_EQ(texts[static_cast<std::size_t>(r)], text(r));
    const auto everywhere = gather_numbers(session(), static_cast<std::uint64_t>(color()));
    EXPECT_EQ(std::accumulate(everywhere.begin(), everywhere.end(), std::uint64_t{0}),
              static_cast<std::uint64_t>(session().size() - GetParam()));
}

TEST_P(TwoSessions, AgreeAlone) {
    const auto work = [&] {
        if (in_first() && mine_.rank() == mine_.size() - 1) throw InputError("first", "bad");
    };
    if (in_first()) {
        EXPECT_THROW(agree(mine_, work), InputError);
    } else {
        EXPECT_NO_THROW(agree(mine_, work));
    }
    EXPECT_EQ(any_rank(mine_, in_first()), in_first());
}

/// Its number of rounds differs from that of the other session.
TEST_P(TwoSessions, GatherTheirOwnValues) {
    for (int round = 0; round < 5 + 3 * color(); ++round) {
        const auto values = [&](int rank) {
            return std::vector<float>(static_cast<std::size_t>(rank + round),
                                      static_cast<float>(10 * color() + rank));
        };
        const std::vector<std::vector<float>> all = gather(mine_, values(number()));
        ASSERT_EQ(all.size(), static_cast<std::size_t>(count()));
        for (int r = 0; r < count(); ++r) EXPECT_EQ(all[static_cast<std::size_t>(r)], values(r));
    }
}

TEST_P(TwoSessions, FollowTheirOwnCommands) {
    const int commands = 20 + 15 * color();
    const auto command = [&](int i) { return cat("of ", color(), ": ", i); };
    CommandChannel channel(mine_);
    if (!mine_.is_root()) channel.report(100 * color() + number());
    for (int i = 0; i < commands; ++i) {
        if (mine_.is_root()) {
            channel.post(command(i));
        } else {
            EXPECT_EQ(channel.next([] {}), command(i));
        }
    }
    if (mine_.is_root()) channel.finish();
    barrier(mine_);
    if (!mine_.is_root()) return;
    const int last = count() > 1 ? 100 * color() + count() - 1 : 0;
    while (channel.reported() < last) {
    }
    EXPECT_EQ(channel.reported(), last);
}

/// Once a text has reached them the root may do something else for good, as the driver of a GPU
/// makes it.
TEST_P(TwoSessions, TakeWithoutTheRootWhatHasReachedThem) {
    const SharedTempDir folder;
    CommandChannel channel(mine_);
    const std::string text(200000, 'x');
    const auto taken = [&](int rank) { return cat(folder.path(), "/taken", color(), ".", rank); };
    if (!mine_.is_root()) {
        EXPECT_EQ(channel.next([] {}), text);
        std::ofstream(taken(number())) << "taken";
        EXPECT_EQ(channel.next([] {}), "end");
        barrier(mine_);
        return;
    }
    const std::int64_t number = channel.post(text);
    for (int rank = 1; rank < count(); ++rank) {
        while (!channel.has_reached(rank, number)) channel.progress();
    }
    for (int rank = 1; rank < count(); ++rank) {
        while (!std::filesystem::exists(taken(rank))) std::this_thread::yield();
    }
    EXPECT_EQ(channel.post("end"), number + 1);
    channel.finish();
    EXPECT_TRUE(channel.has_reached(count() - 1) || count() == 1);
    barrier(mine_);
}

TEST_P(TwoSessions, TellTheirOwnRootInOrder) {
    constexpr int texts = 5;
    CommandChannel channel(mine_);
    const auto text = [&](int rank, int i) {
        return cat(color(), ":", rank, " ") + std::string(static_cast<std::size_t>(i * 3000), 'x');
    };
    for (int i = 0; i < texts && !mine_.is_root(); ++i) channel.send_report(text(number(), i));
    std::map<std::string, int> reported;
    for (int left = mine_.is_root() ? texts * (count() - 1) : 0; left > 0;) {
        const std::optional<std::string> next = channel.next_report();
        if (!next) continue;
        --left;
        const std::string rank = next->substr(0, next->find(' ') + 1);
        EXPECT_EQ(next->size(), rank.size() + 3000U * static_cast<unsigned>(reported[rank]++));
        EXPECT_TRUE(rank.starts_with(cat(color(), ":")));
    }
    barrier(mine_);
    EXPECT_FALSE(channel.next_report());
}

TEST_P(TwoSessions, PassOnTheirOwnMessages) {
    const auto communicator = make_mpi_communicator(mine_);
    const int next = (number() + 1) % count();
    const int before = (number() + count() - 1) % count();
    for (int i = 0; i < 50 + 30 * color(); ++i) {
        const std::vector<int> sent(1000U * static_cast<std::size_t>(1 + i % 3),
                                    1000 * color() + 100 * number() + i);
        std::vector<int> received(sent.size(), -1);
        const std::size_t bytes = sent.size() * sizeof(int);
        const auto in = communicator->receive(received.data(), bytes, before, Channel::forward);
        communicator->send(sent.data(), bytes, next, Channel::forward)->wait();
        in->wait();
        EXPECT_EQ(received, std::vector<int>(sent.size(), 1000 * color() + 100 * before + i));
    }
}

INSTANTIATE_TEST_SUITE_P(Of, TwoSessions, ::testing::Values(1, 2, 3),
                         [](const auto& test) { return cat("first_", test.param); });

}  // namespace
}  // namespace loratrain::mpi_test
