#include "plan/cost/fit_costs.h"

#include <gtest/gtest.h>

#include <vector>

namespace loratrain {
namespace {

constexpr NewShapeLine prior{7.0, 8.0, 3, 9.0};

/// The loads of a profile: sizes with a shape each.
std::vector<NewShapeObservation> observed(const NewShapeLine& line) {
    std::vector<NewShapeObservation> all;
    std::int64_t nth = 0;
    for (const double rows : {8192.0, 2048.0, 4096.0, 6144.0, 3072.0}) {
        ++nth;
        all.push_back({nth, rows, line.seconds(nth, rows)});
    }
    return all;
}

TEST(FitNewShapes, FindsWhatShapesTake) {
    const NewShapeLine found = fit_new_shapes(observed({0.05, 0.9, 0, 4e-5}), prior);
    EXPECT_NEAR(found.each, 0.05, 1e-6);
    EXPECT_NEAR(found.first, 0.9, 1e-6);
    EXPECT_NEAR(found.per_row, 4e-5, 1e-9);
    EXPECT_EQ(found.met, prior.met);
}

TEST(FitNewShapes, KeepsWhatIsNotObserved) {
    auto all = observed({0.05, 0.9, 0, 4e-5});
    all[3].seconds = 0.0;
    all[4].seconds = -0.01;
    EXPECT_NE(fit_new_shapes(all, prior).each, prior.each);
    all.erase(all.begin());  // two are left that took longer
    const NewShapeLine found = fit_new_shapes(all, prior);
    EXPECT_EQ(found.each, prior.each);
    EXPECT_EQ(found.first, prior.first);
    EXPECT_EQ(found.per_row, prior.per_row);
    EXPECT_EQ(fit_new_shapes({}, prior).each, prior.each);
}

TEST(FitNewShapes, NothingIsNegative) {
    std::vector<NewShapeObservation> all;
    for (std::int64_t nth = 1; nth < 6; ++nth) {
        all.push_back({nth, 1000.0 * static_cast<double>(nth), 1.0 / static_cast<double>(nth)});
    }
    const NewShapeLine found = fit_new_shapes(all, prior);
    EXPECT_NEAR(found.first, 1.0, 1e-6);
    EXPECT_GE(found.each, 0.0);
    EXPECT_GE(found.per_row, 0.0);
}

TEST(FitNewTargets, TellsFirstOnesFromOthers) {
    const NewShapeLine line{0.1, 0.6, 0, 0.0};
    const std::vector<NewTargetsObservation> all{
        {2, line.seconds(1, 0) + line.seconds(2, 0)}, {0, 5.0}, {1, 0.1}, {3, 0.3}};
    const NewShapeLine found = fit_new_targets(all, prior);
    EXPECT_NEAR(found.each, 0.1, 1e-9);
    EXPECT_NEAR(found.first, 0.6, 1e-9);
    EXPECT_EQ(found.per_row, 0.0);
    const NewShapeLine unknown = fit_new_targets({all.data(), 2}, prior);
    EXPECT_EQ(unknown.each, prior.each);
}

}  // namespace
}  // namespace loratrain
