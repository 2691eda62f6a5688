#include "backend/gemm_choices.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

namespace loratrain {
namespace {

using Waves = std::vector<std::optional<std::int64_t>>;

GemmCandidate candidate(std::uint64_t number, std::int64_t nanoseconds, std::int64_t milliwaves) {
    return {{number, 0, 0, 0, 0, 0, 0, 7}, nanoseconds, milliwaves};
}

/// By the first word of the algorithm.
std::optional<std::size_t> pick(const GemmCandidates& candidates, const Waves& waves) {
    return pick_candidate(candidates,
                          [&](const GemmCandidate& c) { return waves[c.algorithm[0]]; });
}

GemmKey key_of(std::int64_t rows, std::int64_t columns = 512) {
    return {rows, columns, 4096, 8, 8, 8, 0, 0, 1, 0, 256, 256, 256};
}

class GemmChoicesTest : public ::testing::Test {
  protected:
    GemmChoicesTest() {
        std::filesystem::remove_all(folder_);
        std::filesystem::create_directories(folder_);
    }
    ~GemmChoicesTest() override { std::filesystem::remove_all(folder_); }

    GemmChoices of(const std::string& run, const std::string& tag = "library/gpu/bf16") const {
        return {tag, path(run), path("shared")};
    }
    std::string path(const std::string& name) const { return folder_ + "/" + name; }
    std::string text(const std::string& name) const {
        std::ifstream file(path(name));
        return {std::istreambuf_iterator<char>(file), {}};
    }

    std::string folder_ =
        std::filesystem::temp_directory_path() / ("gemm_choices." + std::to_string(::getpid()));
};

TEST(PickCandidate, TheTimedOneIsTheFastest) {
    const GemmCandidates two{candidate(0, 1000, 7800), candidate(1, 1020, 15500)};
    EXPECT_EQ(pick(two, {7800, 15500}), 0U);
}

TEST(PickCandidate, AWaveThatIsHardlyFilledCostsHalfAFullOne) {
    // 2 waves of 128 x 256 or 4 of 128 x 128; with a few rows more or less 2.05 and 4.1, 1.95
    // and 3.9
    const GemmCandidates two{candidate(0, 1000, 2000), candidate(1, 1050, 4000)};
    EXPECT_EQ(pick(two, {2050, 4100}), 1U);  // 1000 x 5.05 / 4 = 1262, 1050 x 9.1 / 8 = 1194
    EXPECT_EQ(pick(two, {1950, 3900}), 0U);  // 988 and 1037
    EXPECT_EQ(pick(two, {900, 1800}), 0U);   // 475 and 499
    EXPECT_EQ(pick(two, {1050, 1990}), 1U);  // 762 and 524
}

TEST(PickCandidate, AnotherMustBeClearlyBetter) {
    const GemmCandidates two{candidate(0, 1000, 4000), candidate(1, 1000, 4000)};
    EXPECT_EQ(pick(two, {4000, 3900}), 0U);  // 7.9 / 8 is 1.3% less
    EXPECT_EQ(pick(two, {4000, 3500}), 1U);  // 7.5 / 8
}

TEST(PickCandidate, TheNextWhereTheLibraryRefuses) {
    const GemmCandidates three{candidate(0, 1000, 2000), candidate(1, 1100, 2000),
                               candidate(2, 1200, 2000)};
    EXPECT_EQ(pick(three, {std::nullopt, 2000, 2000}), 1U);
    EXPECT_EQ(pick(three, {std::nullopt, std::nullopt, 2000}), 2U);
    EXPECT_EQ(pick(three, {std::nullopt, std::nullopt, std::nullopt}), std::nullopt);
    EXPECT_EQ(pick({}, {}), std::nullopt);
}

TEST(PickCandidate, TheFirstThatCanBeUsedWhereWavesAreNotKnown) {
    EXPECT_EQ(pick({candidate(0, 0, 0), candidate(1, 0, 0)}, {1000, 500}), 0U);
    const GemmCandidates timed{candidate(0, 1000, 2000), candidate(1, 1001, 2000)};
    EXPECT_EQ(pick(timed, {0, 100}), 0U);
    EXPECT_EQ(pick(timed, {std::nullopt, 0}), 1U);
}

TEST(WorthTrying, NearestFirstAndEachOnce) {
    const GemmCandidates near{candidate(1, 100, 0), candidate(2, 106, 0), candidate(3, 120, 0)};
    const GemmCandidates far{candidate(2, 50, 0), candidate(4, 51, 0)};
    const GemmCandidates none;
    const auto numbers = [&](std::size_t most) {
        std::vector<std::uint64_t> result;
        for (const auto& c : worth_trying({&near, &none, &far}, 1.07, most)) {
            result.push_back(c.algorithm[0]);
        }
        return result;
    };
    EXPECT_EQ(numbers(6), (std::vector<std::uint64_t>{1, 2, 4}));
    EXPECT_EQ(numbers(2), (std::vector<std::uint64_t>{1, 2}));
}

TEST_F(GemmChoicesTest, TheFirstToAgreeHasChosenForAllRanksOfARun) {
    GemmChoices one = of("run");
    GemmChoices other = of("run");
    EXPECT_EQ(one.find(key_of(64)), nullptr);
    EXPECT_EQ(other.find(key_of(64)), nullptr);
    const GemmCandidates first{candidate(1, 100, 1000), candidate(2, 110, 900)};
    EXPECT_EQ(one.agree(key_of(64), first), first);
    EXPECT_EQ(other.agree(key_of(64), {candidate(3, 90, 1000)}), first);
    EXPECT_EQ(one.agree(key_of(64), {candidate(4, 80, 1000)}), first);
    ASSERT_NE(other.find(key_of(64)), nullptr);
    EXPECT_EQ(*other.find(key_of(64)), first);
    GemmChoices resumed = of("run");
    EXPECT_EQ(*resumed.find(key_of(64)), first);
}

TEST_F(GemmChoicesTest, RunsShareAFileAndKeepTheirOwn) {
    const GemmCandidates shared{candidate(1, 100, 1000)};
    of("first").agree(key_of(64), shared);
    GemmChoices second = of("second");
    EXPECT_EQ(*second.find(key_of(64)), shared);
    const GemmCandidates own{candidate(2, 100, 1000)};
    std::filesystem::remove(path("shared"));
    EXPECT_EQ(of("second").agree(key_of(64), own), shared);  // a stopped run continues
    EXPECT_EQ(of("third").agree(key_of(64), own), own);
    EXPECT_EQ(of("fourth").agree(key_of(64), shared), own);
}

TEST_F(GemmChoicesTest, LinesOfOthersAndOldOrBrokenOnesAreNotRead) {
    const GemmCandidates list{candidate(1, 100, 1000)};
    of("run", "library/other/bf16").agree(key_of(64), list);
    EXPECT_EQ(of("run").find(key_of(64)), nullptr);
    const std::string line = text("run");
    std::ofstream(path("run"))
        << "library/gpu/bf16 64 512 4096 8 8 8 0 0 1 0 256 256 256 1 0 0 0 0 0 0 0\n"
        << "v2/library/gpu/bf16 64 512 4096 8 8 8 0 0 1 0 256 256 256\n"
        << "v2/library/gpu/bf16 64 512 4096 8 8 8 0 0 1 0 256 256 256 99999999 1 1\n"
        << "v2/library/gpu/bf16 64 512 4096 8 8 8 0 0 1 0 256 256 256 1 5 5 1 2 3\n\n";
    EXPECT_EQ(of("run").find(key_of(64)), nullptr);
    EXPECT_EQ(of("run").agree(key_of(64), list), list);
    EXPECT_EQ(*of("run").find(key_of(64)), list);
}

TEST_F(GemmChoicesTest, WithoutFilesEachHasItsOwn) {
    GemmChoices alone("tag", "", "");
    const GemmCandidates list{candidate(1, 100, 1000)};
    EXPECT_EQ(alone.find(key_of(64)), nullptr);
    EXPECT_EQ(alone.agree(key_of(64), list), list);
    EXPECT_EQ(*alone.find(key_of(64)), list);
}

TEST_F(GemmChoicesTest, RelativesDifferInRowsAndTermsAlone) {
    GemmChoices choices = of("run");
    choices.agree(key_of(1024), {candidate(1, 1, 1)});
    choices.agree(key_of(128), {candidate(2, 1, 1)});
    choices.agree(key_of(512, 768), {candidate(3, 1, 1)});
    GemmKey deeper = key_of(512);
    deeper[2] = 8192;
    choices.agree(deeper, {candidate(4, 1, 1)});
    std::vector<std::uint64_t> numbers;
    for (const GemmCandidates* list : choices.relatives(key_of(256))) {
        numbers.push_back(list->front().algorithm[0]);
    }
    EXPECT_EQ(numbers, (std::vector<std::uint64_t>{2, 4, 1}));
}

}  // namespace
}  // namespace loratrain
