#include "plan/cost/fit_costs.h"

#include <gtest/gtest.h>

#include <vector>

#include "base/rng.h"

namespace loratrain {
namespace {

const CostLine truth{2e-4, 3e-6, 4e-10};

/// Loads of `tokens` in one sample and in samples of 64 tokens.
std::vector<CostObservation> observations(const CostLine& line, double noise = 0.0) {
    std::vector<CostObservation> result;
    for (int repeat = 0; repeat < (noise > 0 ? 40 : 1); ++repeat) {
        for (const double tokens : {256.0, 512.0, 1024.0, 2048.0}) {
            for (const double sample : {64.0, tokens}) {
                const double squares = tokens * sample;
                const double factor = 1.0 + noise * (2.0 * uniform_float(7, result.size()) - 1.0);
                result.push_back({tokens, squares, line.seconds(tokens, squares) * factor});
            }
        }
    }
    return result;
}

void expect_near(const CostLine& line, const CostLine& expected, double relative) {
    EXPECT_NEAR(line.fixed, expected.fixed, relative * expected.fixed);
    EXPECT_NEAR(line.per_token, expected.per_token, relative * expected.per_token);
    EXPECT_NEAR(line.per_square, expected.per_square, relative * expected.per_square);
}

TEST(FitCosts, FindsTheLineOfExactObservations) {
    expect_near(*fit_cost_line(observations(truth)), truth, 1e-6);
}

TEST(FitCosts, TellsSegmentsFromWhatIsFixed) {
    const CostLine line{3e-4, 5e-6, 1e-9, 2e-4};
    std::vector<CostObservation> of_both;
    for (const CostObservation& o : observations(line)) {
        for (const double segments : {1.0, 8.0}) {
            of_both.push_back(
                {o.rows, o.squares, line.seconds(o.rows, o.squares, segments), segments});
        }
    }
    const CostLine fitted = *fit_cost_line(of_both);
    expect_near(fitted, line, 1e-6);
    EXPECT_NEAR(fitted.per_segment, line.per_segment, 1e-6 * line.per_segment);
    CostFit refined({2e-4, 4e-6, 2e-9, 3e-4});
    for (int i = 0; i < 200; ++i) {
        for (const CostObservation& o : of_both) refined.add(o);
    }
    EXPECT_NEAR(refined.refined().per_segment, line.per_segment, 0.05 * line.per_segment);
}

TEST(FitCosts, NoiseAveragesOut) {
    const CostLine fitted = *fit_cost_line(observations(truth, 0.1));
    for (const CostObservation& o : observations(truth)) {
        EXPECT_NEAR(fitted.seconds(o.rows, o.squares), o.seconds, 0.03 * o.seconds);
    }
}

TEST(FitCosts, MeansOfScatteredObservationsAreMet) {
    const std::vector<CostObservation> scattered{{100, 0, 1.0}, {100, 0, 2.0}, {100, 0, 1.5}};
    EXPECT_NEAR(fit_cost_line(scattered)->seconds(100, 0), 1.5, 1e-12);
}

TEST(FitCosts, SmallLoadsCountAsMuchAsLargeOnes) {
    const std::vector<CostObservation> bent{{1, 0, 1.0}, {1000, 0, 10.0}, {2000, 0, 25.0}};
    EXPECT_NEAR(fit_cost_line(bent)->seconds(1, 0), 1.0, 0.1);
}

TEST(FitCosts, NoCoefficientIsNegative) {
    const std::vector<CostObservation> falling{{100, 1e4, 3.0}, {200, 4e4, 2.0}, {400, 16e4, 1.0}};
    const CostLine line = *fit_cost_line(falling);
    EXPECT_GT(line.fixed, 0.0);
    EXPECT_EQ(line.per_token, 0.0);
    EXPECT_EQ(line.per_square, 0.0);
    const CostLine steep = *fit_cost_line(std::vector<CostObservation>{{10, 0, 1}, {20, 0, 4}});
    EXPECT_EQ(steep.fixed, 0.0);
    EXPECT_GT(steep.per_token, 0.0);
}

TEST(FitCosts, EqualLoadsGiveRowsAllOfTheTime) {
    const std::vector<CostObservation> equal(5, CostObservation{100, 1e4, 0.2});
    const CostLine line = *fit_cost_line(equal);
    EXPECT_NEAR(line.per_token, 0.002, 1e-12);
    EXPECT_EQ(line.fixed, 0.0);
    EXPECT_EQ(line.per_square, 0.0);
}

TEST(FitCosts, WithoutObservationsThereIsNoLine) {
    EXPECT_FALSE(fit_cost_line({}));
    EXPECT_FALSE(fit_cost_line(std::vector<CostObservation>{{100, 1e4, 0.0}}));
}

TEST(CostFit, FewObservationsKeepThePrior) {
    CostFit fit(truth);
    fit.add({100, 1e4, 5.0});
    fit.add({200, 1e4, 0.0});
    expect_near(fit.refined(), truth, 0.0);
}

TEST(CostFit, EqualLoadsScaleThePrior) {
    CostFit fit(truth);
    for (int i = 0; i < 10; ++i) fit.add({512, 512 * 64, 3.0 * truth.seconds(512, 512 * 64)});
    expect_near(fit.refined(), {3 * truth.fixed, 3 * truth.per_token, 3 * truth.per_square}, 1e-9);
}

TEST(CostFit, ManyObservationsOverruleThePrior) {
    CostFit fit({1e-3, 1e-6, 1e-9});
    for (int i = 0; i < 500; ++i) {
        for (const CostObservation& o : observations(truth)) fit.add(o);
    }
    expect_near(fit.refined(), truth, 0.05);
}

TEST(CostFit, RanksAddTheirObservations) {
    CostFit whole(truth);
    CostFit first(truth);
    CostFit second(truth);
    for (const CostObservation& o : observations({1e-4, 5e-6, 1e-10}, 0.2)) {
        whole.add(o);
        (o.rows > 600 ? first : second).add(o);
    }
    first.merge(second.sums());
    expect_near(first.refined(), whole.refined(), 1e-6);
}

TEST(CostFit, ForgetsWhatWasLongAgo) {
    CostFit fit(truth, 4.0, 0.9);
    for (const CostObservation& o : observations(truth, 0.1)) fit.add(o);
    for (CostObservation o : observations(truth, 0.1)) {
        o.seconds *= 2.0;
        fit.add(o);
    }
    EXPECT_NEAR(fit.refined().seconds(1024, 1024 * 64) / truth.seconds(1024, 1024 * 64), 2.0, 0.2);
}

TEST(CostFit, PriorOfZerosTakesWhatIsObserved) {
    CostFit fit(CostLine{});
    for (const CostObservation& o : observations(truth)) fit.add(o);
    EXPECT_GT(fit.refined().seconds(1024, 1024), 0.0);
}

}  // namespace
}  // namespace loratrain
