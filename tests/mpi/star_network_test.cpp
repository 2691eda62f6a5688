#include "comm/star_network.h"

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <numeric>
#include <set>

#include "base/text.h"
#include "mpi/mpi_main.h"

namespace loratrain::mpi_test {
namespace {

/// What came in, for the main thread to wait for.
class Diary {
  public:
    void add(const std::string& entry) {
        const std::lock_guard lock(mutex_);
        entries_.insert(entry);
        changed_.notify_all();
    }
    /// False when one of them has not come within some seconds.
    bool wait_for(const std::set<std::string>& wanted) {
        std::unique_lock lock(mutex_);
        return changed_.wait_for(lock, std::chrono::seconds(10), [&] {
            return std::includes(entries_.begin(), entries_.end(), wanted.begin(), wanted.end());
        });
    }

  private:
    std::mutex mutex_;
    std::condition_variable changed_;
    std::set<std::string> entries_;
};

/// The ranks that have a connection to this one.
std::vector<int> neighbours() {
    if (!session().is_root()) return {0};
    std::vector<int> others(static_cast<std::size_t>(session().size() - 1));
    std::iota(others.begin(), others.end(), 1);
    return others;
}

StarEvents write_down(Diary& diary, StarNetwork& network) {
    StarEvents events;
    events.received = [&diary](int rank, std::string_view line) {
        diary.add(cat(rank, " says ", line));
    };
    events.lost = [&diary](int rank) { diary.add(cat(rank, " is lost")); };
    events.ticked = [&network](double) { network.send(cat("I am ", session().rank())); };
    return events;
}

TEST(StarNetwork, EveryRankIsConnectedAndHeard) {
    Diary diary;
    StarNetwork network(session());
    std::vector<int> all(static_cast<std::size_t>(session().size() - 1));
    std::iota(all.begin(), all.end(), 1);
    EXPECT_EQ(network.connected(), all);
    network.start(write_down(diary, network), 0.05, "bye");
    std::set<std::string> wanted;
    for (const int rank : neighbours()) wanted.insert(cat(rank, " says I am ", rank));
    EXPECT_TRUE(diary.wait_for(wanted));
    barrier(session());
}

TEST(StarNetwork, LastWordsOfAnyThreadAreHeard) {
    Diary diary;
    StarNetwork network(session());
    network.start(write_down(diary, network), 0.05, "bye");
    const int speaker = session().size() - 1;
    if (session().rank() == speaker) network.last_words("that was all");
    if (session().is_root() && speaker > 0) {
        EXPECT_TRUE(diary.wait_for({cat(speaker, " says that was all")}));
    }
    barrier(session());
}

TEST(StarNetwork, ALossIsFollowedByATickLongBeforeTheNextIsDue) {
    Diary diary;
    int ticks = 0;
    auto network = std::make_unique<StarNetwork>(session());
    StarEvents events = write_down(diary, *network);
    events.ticked = [&](double) { diary.add(cat("tick ", ++ticks)); };
    network->start(std::move(events), 600.0, "bye");
    const int leaver = session().size() - 1;
    if (session().rank() == leaver && leaver > 0) network.reset();
    if (session().is_root() && leaver > 0) {
        EXPECT_TRUE(diary.wait_for({cat(leaver, " is lost"), "tick 2"}));
    }
    barrier(session());
}

TEST(StarNetwork, WhoLeavesSaysGoodbyeAndIsLost) {
    Diary diary;
    auto network = std::make_unique<StarNetwork>(session());
    network->start(write_down(diary, *network), 0.05, "bye");
    const int leaver = session().size() - 1;
    if (session().rank() == leaver && leaver > 0) network.reset();
    if (session().is_root() && leaver > 0) {
        EXPECT_TRUE(diary.wait_for({cat(leaver, " says bye"), cat(leaver, " is lost")}));
    }
    barrier(session());
}

}  // namespace
}  // namespace loratrain::mpi_test
