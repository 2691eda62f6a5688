#include "comm/rank_groups.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>
#include <string_view>
#include <vector>

#include "backend/make_backend.h"
#include "mpi/drawn_values.h"
#include "mpi/gpu_ranks.h"
#include "mpi/mpi_main.h"

namespace loratrain::mpi_test {
namespace {

std::vector<float> drawn_by(int rank, std::size_t count) {
    std::vector<float> values(count);
    for (std::size_t i = 0; i < count; ++i) values[i] = drawn(i, rank);
    return values;
}

/// Skipped where there are fewer GPUs than ranks, unless ranks may share them.
class NcclRankGroup : public ::testing::Test {
  protected:
    void SetUp() override {
        if (too_few_gpus()) GTEST_SKIP() << "too few GPUs";
        backend_ = make_backend("cuda", {1, session().host_rank(), DType::bf16});
        all_ = make_nccl_rank_group(session(), 0, backend_->native_stream());
    }

    static std::size_t ranks() { return static_cast<std::size_t>(session().size()); }

    template <class T>
    Buffer on_device(const std::vector<T>& values) {
        Buffer buffer = backend_->allocate(values.size() * sizeof(T), "test");
        backend_->upload(buffer.data(), values.data(), buffer.bytes());
        return buffer;
    }
    template <class T>
    std::vector<T> on_host(const Buffer& buffer) {
        std::vector<T> values(buffer.bytes() / sizeof(T));
        backend_->download(values.data(), buffer.data(), buffer.bytes());
        backend_->synchronize();
        return values;
    }

    /// What the group makes of each rank's numbers in `dtype`, as bits.
    std::vector<char> summed(RankGroup& group, std::size_t count, DType dtype) {
        const auto cols = static_cast<std::int64_t>(count);
        const Buffer wide = on_device(drawn_by(session().rank(), count));
        const Buffer values = backend_->allocate(count * size_of(dtype), "test");
        const TensorView view{values.data(), dtype, 1, cols, cols};
        backend_->copy({view, {wide.data(), DType::f32, 1, cols, cols}});
        group.all_reduce(view);
        return on_host<char>(values);
    }

    static bool equal_on_all_ranks(const std::vector<char>& bits) {
        const std::size_t hash =
            std::hash<std::string_view>{}(std::string_view(bits.data(), bits.size()));
        const std::vector<std::uint64_t> hashes = gather_numbers(session(), hash);
        return std::equal(hashes.begin() + 1, hashes.end(), hashes.begin());
    }

    std::unique_ptr<Backend> backend_;
    std::unique_ptr<RankGroup> all_;
};

TEST_F(NcclRankGroup, IsOrderedByRank) {
    EXPECT_EQ(all_->size(), session().size());
    EXPECT_EQ(all_->index(), session().rank());
}

TEST_F(NcclRankGroup, SumsHaveEqualBitsOnAllRanksAndAgain) {
    for (const DType dtype : {DType::f32, DType::bf16}) {
        for (const std::size_t count : {0U, 1U, 3U, 1000U, 100003U, (5U << 20U) + 1U}) {
            const std::vector<char> bits = summed(*all_, count, dtype);
            EXPECT_TRUE(equal_on_all_ranks(bits)) << count;
            EXPECT_TRUE(bits == summed(*all_, count, dtype)) << count;
        }
    }
}

TEST_F(NcclRankGroup, SumsAreThoseOfLoops) {
    constexpr std::size_t count = 100003;
    const std::vector<char> bits = summed(*all_, count, DType::f32);
    std::vector<float> got(count);
    std::memcpy(got.data(), bits.data(), bits.size());
    std::size_t wrong = 0;
    for (std::size_t i = 0; i < count; ++i) {
        double sum = 0.0;
        double size = 0.0;
        for (int rank = 0; rank < session().size(); ++rank) {
            sum += static_cast<double>(drawn(i, rank));
            size += std::abs(static_cast<double>(drawn(i, rank)));
        }
        if (std::abs(static_cast<double>(got[i]) - sum) > 1e-6 * size) ++wrong;
    }
    EXPECT_EQ(wrong, 0U);
}

TEST_F(NcclRankGroup, NotANumberReachesAllRanks) {
    std::vector<float> values(9, 1.0F);
    if (session().rank() == session().size() - 1) values[4] = std::nanf("");
    const Buffer buffer = on_device(values);
    all_->all_reduce({buffer.data(), DType::f32, 3, 3, 3});
    const auto got = on_host<float>(buffer);
    for (std::size_t i = 0; i < got.size(); ++i) EXPECT_EQ(std::isnan(got[i]), i == 4) << i;
}

TEST_F(NcclRankGroup, GathersInTheOrderOfRanks) {
    const auto own = static_cast<std::size_t>(session().rank());
    for (const std::size_t count : {0U, 1U, 5U, 70000U}) {
        std::vector<double> want(count * ranks());
        for (std::size_t i = 0; i < want.size(); ++i) want[i] = 0.5 * static_cast<double>(i);
        std::vector<double> mine(want.begin() + static_cast<std::ptrdiff_t>(own * count),
                                 want.begin() + static_cast<std::ptrdiff_t>((own + 1) * count));
        std::vector<double> start(count * ranks(), -1.0);
        std::copy(mine.begin(), mine.end(),
                  start.begin() + static_cast<std::ptrdiff_t>(own * count));
        const Buffer all = on_device(start);
        const Buffer apart = on_device(std::vector<double>(count * ranks(), -1.0));
        const Buffer of_mine = on_device(mine);
        const std::size_t bytes = count * sizeof(double);
        all_->all_gather(all.as<char>() + own * bytes, bytes, all.data());
        all_->all_gather(of_mine.data(), bytes, apart.data());
        EXPECT_EQ(on_host<double>(all), want);
        EXPECT_EQ(on_host<double>(apart), want);
    }
}

TEST_F(NcclRankGroup, PartsOfTheRanksSumByThemselves) {
    const int color = session().rank() / 2;
    const auto pair = make_nccl_rank_group(session(), color, backend_->native_stream());
    const int first = 2 * color;
    ASSERT_EQ(pair->size(), std::min(2, session().size() - first));
    EXPECT_EQ(pair->index(), session().rank() - first);
    const Buffer buffer = on_device(drawn_by(session().rank(), 15));
    pair->all_reduce({buffer.data(), DType::f32, 3, 5, 5});
    const auto got = on_host<float>(buffer);
    for (std::size_t i = 0; i < got.size(); ++i) {
        const float other = pair->size() == 2 ? drawn(i, first + 1) : 0.0F;
        EXPECT_EQ(got[i], drawn(i, first) + other);
    }
}

TEST_F(NcclRankGroup, ARankAloneKeepsItsNumbers) {
    const auto alone = make_nccl_rank_group(session(), session().rank(), backend_->native_stream());
    const std::vector<double> values{1.0, 2.0};
    const Buffer buffer = on_device(values);
    const Buffer gathered = on_device(std::vector<double>(2, -1.0));
    alone->all_reduce({buffer.data(), DType::f32, 1, 4, 4});
    alone->all_gather(buffer.data(), buffer.bytes(), gathered.data());
    EXPECT_EQ(on_host<double>(buffer), values);
    EXPECT_EQ(on_host<double>(gathered), values);
}

}  // namespace
}  // namespace loratrain::mpi_test
