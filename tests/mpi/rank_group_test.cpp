#include "comm/rank_groups.h"

#include <vector>

#include "mpi/drawn_values.h"
#include "mpi/mpi_main.h"

namespace loratrain::mpi_test {
namespace {

/// Rows of a rank's matrix with `padding` floats behind each that nobody may touch.
struct Values {
    Values(std::int64_t rows, std::int64_t cols, std::int64_t padding, int rank)
        : cells(static_cast<std::size_t>(rows * (cols + padding)), untouched),
          view{cells.data(), DType::f32, rows, cols, cols + padding} {
        for (std::int64_t i = 0; i < rows; ++i) {
            for (std::int64_t j = 0; j < cols; ++j) at(i, j) = of_rank(i * cols + j, rank);
        }
    }
    static float of_rank(std::int64_t element, int rank) {
        return drawn(static_cast<std::size_t>(element), rank);
    }
    float& at(std::int64_t row, std::int64_t col) {
        return cells[static_cast<std::size_t>(row * view.ld + col)];
    }

    static constexpr float untouched = 12345.0F;
    std::vector<float> cells;
    TensorView view;
};

class MpiRankGroup : public ::testing::Test {
  protected:
    std::unique_ptr<RankGroup> all_ = make_mpi_rank_group(session(), 0);
};

/// Sum of what all ranks have, added by a plain loop in rank order.
float sum_of(std::int64_t element, int ranks) {
    float sum = Values::of_rank(element, 0);
    for (int rank = 1; rank < ranks; ++rank) sum += Values::of_rank(element, rank);
    return sum;
}

TEST_F(MpiRankGroup, IsOrderedByRank) {
    EXPECT_EQ(all_->size(), session().size());
    EXPECT_EQ(all_->index(), session().rank());
}

TEST_F(MpiRankGroup, AddsInTheOrderOfRanks) {
    struct Shape {
        std::int64_t rows, cols, padding;
    };
    for (const Shape& shape : {Shape{0, 5, 0},
                               {5, 0, 0},
                               {1, 1, 0},
                               {1, 3, 2},
                               {3, 1, 7},
                               {7, 13, 0},
                               {13, 7, 5},
                               {1, (1 << 20) + 3, 0},
                               {(1 << 11) + 1, (1 << 10) + 1, 16}}) {
        Values values(shape.rows, shape.cols, shape.padding, session().rank());
        all_->all_reduce(values.view);
        std::int64_t wrong = 0;
        for (std::int64_t i = 0; i < shape.rows; ++i) {
            for (std::int64_t j = 0; j < shape.cols; ++j) {
                if (values.at(i, j) != sum_of(i * shape.cols + j, session().size())) ++wrong;
            }
            for (std::int64_t j = shape.cols; j < values.view.ld; ++j) {
                if (values.at(i, j) != Values::untouched) ++wrong;
            }
        }
        EXPECT_EQ(wrong, 0) << shape.rows << " x " << shape.cols;
    }
}

TEST_F(MpiRankGroup, NotANumberReachesAllRanks) {
    Values values(2, 9, 0, session().rank());
    if (session().rank() == session().size() - 1) values.at(1, 4) = std::nanf("");
    all_->all_reduce(values.view);
    for (std::int64_t j = 0; j < 9; ++j) {
        EXPECT_FALSE(std::isnan(values.at(0, j)));
        EXPECT_EQ(std::isnan(values.at(1, j)), j == 4);
    }
}

TEST_F(MpiRankGroup, GathersInTheOrderOfRanks) {
    for (const std::size_t count : {0U, 1U, 5U, 70000U}) {
        const auto ranks = static_cast<std::size_t>(session().size());
        const auto own = static_cast<std::size_t>(session().rank());
        std::vector<double> all(count * ranks, -1.0);
        for (std::size_t i = 0; i < count; ++i) {
            all[own * count + i] = static_cast<double>(1000000 * own + i);
        }
        const std::vector<double> mine(all.data() + own * count, all.data() + (own + 1) * count);
        std::vector<double> apart(count * ranks, -1.0);
        all_->all_gather(all.data() + own * count, count * sizeof(double), all.data());
        all_->all_gather(mine.data(), count * sizeof(double), apart.data());
        for (std::size_t rank = 0; rank < ranks; ++rank) {
            for (std::size_t i = 0; i < count; ++i) {
                EXPECT_EQ(all[rank * count + i], static_cast<double>(1000000 * rank + i));
            }
        }
        EXPECT_EQ(apart, all);
    }
}

TEST_F(MpiRankGroup, PartsOfTheRanksSumByThemselves) {
    const int color = session().rank() / 2;
    const auto pair = make_mpi_rank_group(session(), color);
    const int first = 2 * color;
    EXPECT_EQ(pair->size(), std::min(2, session().size() - first));
    EXPECT_EQ(pair->index(), session().rank() - first);
    Values values(3, 5, 0, session().rank());
    pair->all_reduce(values.view);
    for (std::int64_t i = 0; i < 15; ++i) {
        float want = Values::of_rank(i, first);
        if (pair->size() == 2) want += Values::of_rank(i, first + 1);
        EXPECT_EQ(values.at(i / 5, i % 5), want);
    }
}

}  // namespace
}  // namespace loratrain::mpi_test
