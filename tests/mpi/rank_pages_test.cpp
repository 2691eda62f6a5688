#include "comm/shared_memory.h"

#include <cstdint>
#include <vector>

#include "mpi/mpi_main.h"

namespace loratrain::mpi_test {
namespace {

constexpr std::size_t words = 5000;

std::uint32_t* words_of(const RankPages& pages, int rank) {
    return reinterpret_cast<std::uint32_t*>(pages.of(rank));
}

std::uint32_t value_of(int rank, std::size_t i) {
    return static_cast<std::uint32_t>(1000 * (rank + 1) + static_cast<int>(i % 97));
}

/// All but the last rank, which shares nothing.
std::vector<int> sharing() {
    std::vector<int> ranks;
    for (int rank = 0; rank + 1 < session().size(); ++rank) ranks.push_back(rank);
    return ranks;
}

TEST(RankPages, OthersReadWhatARankWrites) {
    const int rank = session().rank();
    const bool shares = rank + 1 < session().size();
    const auto shared =
        RankPages::connect(session(), shares ? words * sizeof(std::uint32_t) : 0, sharing());
    ASSERT_NE(shared.pages, nullptr) << shared.refusal;
    EXPECT_EQ(shared.pages->ranks(), sharing());
    barrier(session());
    if (shares) {
        std::uint32_t* own = words_of(*shared.pages, rank);
        for (std::size_t i = 0; i < words; ++i) {
            ASSERT_EQ(own[i], 0U) << i;
            own[i] = value_of(rank, i);
        }
    }
    barrier(session());
    for (const int other : sharing()) {
        EXPECT_EQ(shared.pages->bytes(other), words * sizeof(std::uint32_t));
        const std::uint32_t* read = words_of(*shared.pages, other);
        for (std::size_t i = 0; i < words; ++i) ASSERT_EQ(read[i], value_of(other, i)) << i;
    }
}

TEST(RankPages, AllOrNone) {
    constexpr std::size_t too_much = std::size_t{1} << 60U;
    for (int without = 0; without < session().size(); ++without) {
        const auto shared =
            RankPages::connect(session(), session().rank() == without ? too_much : 4096, {});
        EXPECT_EQ(shared.pages, nullptr);
        EXPECT_EQ(shared.refusal.find("rank " + std::to_string(without) + ": cannot make"), 0U)
            << shared.refusal;
    }
}

}  // namespace
}  // namespace loratrain::mpi_test
