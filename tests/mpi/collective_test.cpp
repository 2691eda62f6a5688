#include <algorithm>
#include <chrono>
#include <thread>

#include "base/error.h"
#include "mpi/mpi_main.h"

namespace loratrain::mpi_test {
namespace {

/// What agree() throws here: the problems of an InputError, or the text of an Error.
std::vector<std::string> thrown_by(const std::function<void()>& work) {
    try {
        agree(session(), work);
    } catch (const InputError& error) {
        std::vector<std::string> texts{"input error"};
        for (const Problem& problem : error.problems()) texts.push_back(to_string(problem));
        return texts;
    } catch (const Error& error) {
        return {"error", error.what()};
    }
    return {};
}

TEST(Agree, NobodyThrows) {
    int calls = 0;
    EXPECT_TRUE(thrown_by([&] { ++calls; }).empty());
    EXPECT_EQ(calls, 1);
}

TEST(Agree, OneRankThrowsInputErrorOnAll) {
    const int culprit = session().size() - 1;
    const auto texts = thrown_by([&] {
        if (session().rank() != culprit) return;
        throw InputError({{"job.yaml:3", "bad value 'x'", "write y"}, {"data.jsonl:7", "", ""}});
    });
    EXPECT_EQ(texts,
              (std::vector<std::string>{"input error", "job.yaml:3: bad value 'x'\n    write y",
                                        "data.jsonl:7: "}));
}

TEST(SharedRefusal, TellsTheFirstRankThatFails) {
    EXPECT_EQ(shared_refusal(session(), [] {}), "");
    const int last = session().size() - 1;
    const auto from = [](int first) {
        return [first] {
            if (session().rank() >= first) throw Error("no memory");
        };
    };
    EXPECT_EQ(shared_refusal(session(), from(last)), cat("rank ", last, ": no memory"));
    EXPECT_EQ(shared_refusal(session(), from(0)), "rank 0: no memory");
}

TEST(Agree, EveryProblemOnce) {
    const auto texts = thrown_by([&] {
        throw InputError({{"shared.yaml:1", "all ranks see this", "hint"},
                          {cat("rank ", session().rank()), "only here", ""}});
    });
    ASSERT_EQ(texts.size(), static_cast<std::size_t>(session().size()) + 2);
    EXPECT_EQ(texts[1], "shared.yaml:1: all ranks see this\n    hint");
    for (int rank = 0; rank < session().size(); ++rank) {
        EXPECT_EQ(texts[static_cast<std::size_t>(rank) + 2], cat("rank ", rank, ": only here"));
    }
}

TEST(Agree, ErrorIsWorseThanInputError) {
    const int culprit = session().size() - 1;
    const auto texts = thrown_by([&] {
        if (session().rank() == culprit) throw Error("the disk is full");
        throw InputError("job.yaml:1", "bad");
    });
    EXPECT_EQ(texts, (std::vector<std::string>{"error", "the disk is full"}));
}

TEST(Agree, OtherExceptionsAreErrors) {
    const auto texts = thrown_by([] { throw std::out_of_range("some library"); });
    EXPECT_EQ(texts, (std::vector<std::string>{"error", "some library"}));
}

TEST(Agree, AnyCharacters) {
    std::string all;
    for (int c = 0; c < 256; ++c) all += static_cast<char>(c);
    const auto texts = thrown_by([&] {
        throw InputError({{all, "\x1f\x1e", "5 x"}, {"", "12 ", all}, {"a", "", ""}});
    });
    EXPECT_EQ(texts, (std::vector<std::string>{"input error", all + ": \x1f\x1e\n    5 x",
                                               "12 \n    " + all, "a: "}));
}

TEST(Agree, LongTexts) {
    const std::string text(3U << 20U, 'x');
    const auto texts = thrown_by([&] {
        if (session().rank() == session().size() - 1) throw InputError("where", text);
    });
    ASSERT_EQ(texts.size(), 2U);
    EXPECT_EQ(texts[1], "where: " + text);
}

TEST(Texts, BroadcastFromEveryRank) {
    for (int root = 0; root < session().size(); ++root) {
        for (const std::size_t length : {0U, 1U, 100000U}) {
            const std::string text(length, static_cast<char>('a' + root));
            EXPECT_EQ(broadcast_text(session(), session().rank() == root ? text : "ignored", root),
                      text);
        }
    }
}

TEST(Numbers, GatheredInRankOrder) {
    const auto rank = static_cast<std::uint64_t>(session().rank());
    const auto all = gather_numbers(session(), (std::uint64_t{1} << 40U) + rank);
    ASSERT_EQ(all.size(), static_cast<std::size_t>(session().size()));
    for (std::size_t r = 0; r < all.size(); ++r) EXPECT_EQ(all[r], (std::uint64_t{1} << 40U) + r);
}

TEST(Numbers, FractionsGatheredInRankOrder) {
    const auto all = gather_numbers(session(), session().rank() - 0.1);
    ASSERT_EQ(all.size(), static_cast<std::size_t>(session().size()));
    for (std::size_t r = 0; r < all.size(); ++r) {
        EXPECT_EQ(all[r], static_cast<double>(r) - 0.1);
    }
}

TEST(Numbers, AnyRank) {
    EXPECT_FALSE(any_rank(session(), false));
    EXPECT_TRUE(any_rank(session(), true));
    for (int r = 0; r < session().size(); ++r) {
        EXPECT_TRUE(any_rank(session(), session().rank() == r));
    }
}

/// Nanoseconds of the clock that all processes of a host share.
std::uint64_t nanoseconds() {
    const auto now = std::chrono::steady_clock::now().time_since_epoch();
    return static_cast<std::uint64_t>(
        std::chrono::duration_cast<std::chrono::nanoseconds>(now).count());
}

TEST(QuietBarrier, NobodyLeavesBeforeTheLastComes) {
    for (int late = 0; late < session().size(); ++late) {
        if (session().rank() == late) std::this_thread::sleep_for(std::chrono::milliseconds(5));
        const std::uint64_t entered = nanoseconds();
        quiet_barrier(session());
        const std::uint64_t left = nanoseconds();
        const auto all = gather_numbers(session(), entered);
        EXPECT_GE(left, *std::max_element(all.begin(), all.end()));
    }
}

}  // namespace
}  // namespace loratrain::mpi_test
