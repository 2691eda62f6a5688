#include "comm/communicator.h"

#include <chrono>
#include <numeric>
#include <optional>
#include <thread>

#include "backend/make_backend.h"
#include "measure/profile_links.h"
#include "mpi/mpi_main.h"

namespace loratrain::mpi_test {
namespace {

/// Every rank with the next one, but for the last.
std::vector<RankPair> neighbours() {
    std::vector<RankPair> pairs;
    for (int low = 0; low + 1 < session().size(); ++low) pairs.emplace_back(low, low + 1);
    return pairs;
}

/// Messages travel in a ring: to the next rank, from the one before; over MPI alone, or where they
/// can over memory that neighbours share, for messages of so many bytes.
class Ring : public ::testing::TestWithParam<std::optional<std::size_t>> {
  protected:
    int next() const { return (session().rank() + 1) % session().size(); }
    int before() const { return (session().rank() + session().size() - 1) % session().size(); }

    static std::unique_ptr<Communicator> communicator() {
        return GetParam() ? make_mpi_communicator(session(), neighbours(), *GetParam())
                          : make_mpi_communicator(session());
    }

    std::unique_ptr<Communicator> communicator_ = communicator();
};
INSTANTIATE_TEST_SUITE_P(Over, Ring,
                         ::testing::Values(std::nullopt, std::size_t{0}, std::size_t{1} << 20U));

std::vector<int> numbers(std::size_t count, int first) {
    std::vector<int> values(count);
    std::iota(values.begin(), values.end(), first);
    return values;
}

TEST_P(Ring, ManyOutstandingMessagesArriveInOrder) {
    constexpr std::size_t count = 200;
    std::vector<std::vector<int>> sent;
    std::vector<std::vector<int>> received;
    for (std::size_t i = 0; i < count; ++i) {
        const std::size_t length = 1 + 37 * i % 5000;  // eager and rendezvous mixed
        sent.push_back(numbers(length, 1000 * session().rank() + static_cast<int>(i)));
        received.emplace_back(length, -1);
    }
    std::vector<std::unique_ptr<Transfer>> transfers;
    for (std::size_t i = 0; i < count; ++i) {
        transfers.push_back(communicator_->send(sent[i].data(), sent[i].size() * sizeof(int),
                                                next(), Channel::forward));
    }
    for (auto& values : received) {
        transfers.push_back(communicator_->receive(values.data(), values.size() * sizeof(int),
                                                   before(), Channel::forward));
    }
    for (auto& transfer : transfers) transfer->wait();
    for (std::size_t i = 0; i < count; ++i) {
        EXPECT_EQ(received[i], numbers(received[i].size(), 1000 * before() + static_cast<int>(i)));
    }
}

TEST_P(Ring, ChannelsDoNotMix) {
    const std::vector<int> sent{1, 2, 3};
    std::vector<int> received(3, 0);
    std::vector<std::unique_ptr<Transfer>> sends;
    for (std::size_t i = 0; i < 3; ++i) {
        sends.push_back(
            communicator_->send(&sent[i], sizeof(int), next(), static_cast<Channel>(i)));
    }
    for (std::size_t i = 3; i-- > 0;) {  // asked for in the reverse order
        communicator_->receive(&received[i], sizeof(int), before(), static_cast<Channel>(i))
            ->wait();
    }
    for (auto& send : sends) send->wait();
    EXPECT_EQ(received, sent);
}

TEST_P(Ring, EmptyMessages) {
    int value = session().rank();
    int got = -1;
    const auto empty_out = communicator_->send(nullptr, 0, next(), Channel::norms);
    const auto out = communicator_->send(&value, sizeof(int), next(), Channel::norms);
    communicator_->receive(nullptr, 0, before(), Channel::norms)->wait();
    communicator_->receive(&got, sizeof(int), before(), Channel::norms)->wait();
    empty_out->wait();
    out->wait();
    EXPECT_EQ(got, before());
}

TEST_P(Ring, LargeMessage) {
    const std::vector<int> sent = numbers(8U << 20U, session().rank());
    std::vector<int> received(sent.size());
    const std::size_t bytes = sent.size() * sizeof(int);
    const auto in = communicator_->receive(received.data(), bytes, before(), Channel::backward);
    const auto out = communicator_->send(sent.data(), bytes, next(), Channel::backward);
    in->wait();
    out->wait();
    EXPECT_EQ(received, numbers(sent.size(), before()));
}

TEST_P(Ring, WaitingTwiceIsHarmless) {
    int value = session().rank();
    int got = -1;
    const auto in = communicator_->receive(&got, sizeof(int), before(), Channel::forward);
    const auto out = communicator_->send(&value, sizeof(int), next(), Channel::forward);
    for (int i = 0; i < 2; ++i) {
        in->wait();
        out->wait();
    }
    EXPECT_EQ(got, before());
}

TEST_P(Ring, TwoCommunicatorsDoNotMix) {
    const auto other = communicator();
    const std::vector<int> sent{5, 6};
    std::vector<int> received(2, 0);
    const auto first = communicator_->send(&sent[0], sizeof(int), next(), Channel::forward);
    const auto second = other->send(&sent[1], sizeof(int), next(), Channel::forward);
    other->receive(&received[1], sizeof(int), before(), Channel::forward)->wait();
    communicator_->receive(&received[0], sizeof(int), before(), Channel::forward)->wait();
    first->wait();
    second->wait();
    EXPECT_EQ(received, sent);
}

TEST(ThreadsOfABackend, CopyMessagesOfAnyLength) {
    const auto backend = make_backend("cpu", {2, 0});
    const auto communicator =
        make_communicator(session(), neighbours(), std::size_t{1} << 20U, *backend);
    const int last = session().size() - 1;
    for (const std::size_t count : {1U, 16384U, 300001U}) {
        const std::vector<int> sent = numbers(count, session().rank());
        std::vector<int> received(count);
        const std::size_t bytes = count * sizeof(int);
        std::unique_ptr<Transfer> out;
        if (session().rank() < last) {
            out = communicator->send(sent.data(), bytes, session().rank() + 1, Channel::forward);
        }
        if (session().rank() > 0) {
            const int before = session().rank() - 1;
            communicator->receive(received.data(), bytes, before, Channel::forward)->wait();
            EXPECT_EQ(received, numbers(count, before));
        }
        if (out) out->wait();
    }
}

/// What goes over a cable that takes a while: all messages to and from the last rank.
class Delayed final : public Communicator {
  public:
    static constexpr std::chrono::milliseconds delay{5};
    explicit Delayed(Communicator& inner) : inner_(inner) {}
    std::unique_ptr<Transfer> send(const void* data, std::size_t bytes, int target,
                                   Channel channel) override {
        const int last = session().size() - 1;
        if (target == last || session().rank() == last) std::this_thread::sleep_for(delay);
        return inner_.send(data, bytes, target, channel);
    }
    std::unique_ptr<Transfer> receive(void* data, std::size_t bytes, int source,
                                      Channel channel) override {
        return inner_.receive(data, bytes, source, channel);
    }

  private:
    Communicator& inner_;
};

TEST(ProfileLinks, MeasuresEachPairAndTellsAllRanks) {
    const auto backend = make_backend("cpu", {1, 0});
    const auto communicator = make_mpi_communicator(session());
    Delayed delayed(*communicator);
    const std::vector<RankPair> pairs = neighbours();
    const auto links = profile_links(session(), pairs, 100000, delayed, *backend);
    ASSERT_EQ(links.size(), pairs.size());
    for (const LinkBetweenHosts& link : links) {
        EXPECT_EQ(link.from, session().host());
        EXPECT_GT(link.cost.fixed, 0.0);
        EXPECT_GE(link.cost.per_byte, 0.0);
        for (const double value : {link.cost.fixed, link.cost.per_byte}) {
            EXPECT_EQ(gather_numbers(session(), value),
                      std::vector(static_cast<std::size_t>(session().size()), value));
        }
    }
    if (!links.empty()) {
        EXPECT_GE(links.back().cost.fixed, std::chrono::duration<double>(Delayed::delay).count());
    }
}

}  // namespace
}  // namespace loratrain::mpi_test
