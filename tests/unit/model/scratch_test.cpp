#include "model/workspace.h"

#include <gtest/gtest.h>

#include <utility>
#include <vector>

#include "base/error.h"

namespace loratrain {
namespace {

/// All Workspaces of this program's tests check their leases.
[[maybe_unused]] const bool checked = scratch_is_checked = true;

class ScratchLease : public testing::Test {
  protected:
    Scratch lease(std::int64_t first_row, std::int64_t rows, const char* name = "scratch") {
        const TensorView all = matrix(floats_.data(), DType::f32, 8, 4);
        return {all.row_range(first_row, rows), name, &leased_};
    }

    std::vector<float> floats_ = std::vector<float>(32);
    LeasedBytes leased_;
};

TEST_F(ScratchLease, OfBytesThatAreLeasedNamesBoth) {
    const Scratch first = lease(0, 4, "gradients");
    try {
        lease(3, 2, "sums");
        FAIL() << "no error";
    } catch (const std::exception& error) {
        EXPECT_NE(std::string(error.what()).find("sums leased while gradients is"),
                  std::string::npos)
            << error.what();
    }
}

TEST_F(ScratchLease, OfOtherBytesOrBehindItsEndIsFree) {
    Scratch first = lease(0, 4);
    const Scratch second = lease(4, 4);
    first.end();
    const Scratch third = lease(2, 2);
    EXPECT_THROW(lease(3, 1), std::exception);
}

TEST_F(ScratchLease, EndsOnceAndWithItsObject) {
    { const Scratch first = lease(0, 8); }
    Scratch second = lease(0, 8);
    Scratch third = std::move(second);
    second.end();
    EXPECT_THROW(lease(0, 1), std::exception);
    third = Scratch();
    const Scratch fourth = lease(0, 8);
    EXPECT_EQ(fourth->rows, 8);
}

TEST_F(ScratchLease, IsNotCheckedWithoutALedger) {
    const TensorView all = matrix(floats_.data(), DType::f32, 8, 4);
    const Scratch first(all, "scratch", nullptr);
    const Scratch second(all, "scratch", nullptr);
    EXPECT_EQ(first->data, second->data);
}

TEST_F(ScratchLease, WithoutElementsTakesNothing) {
    const Scratch first = lease(0, 4);
    { const Scratch empty = lease(0, 0); }
    EXPECT_THROW(lease(0, 1), std::exception);
}

}  // namespace
}  // namespace loratrain
