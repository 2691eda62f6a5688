#include <limits>

#include "reference/cross_entropy.h"
#include "support/backend_case.h"
#include "support/device_data.h"

namespace loratrain {
namespace {

using reference::HostMatrix;

constexpr double no_logit = std::numeric_limits<double>::infinity();

/// Lanes have the columns between neighbouring `cuts`. They run one after the other here, so that
/// the statistics of all are at hand.
class CrossEntropyShards {
  public:
    CrossEntropyShards(Backend& backend, const HostMatrix& logits,
                       const std::vector<std::int64_t>& cuts,
                       const std::vector<std::int32_t>& targets)
        : backend_(backend),
          rows_(logits.rows),
          scales_(scales_of(targets.size())),
          targets_(backend, targets),
          bins_(backend, std::vector<std::int32_t>(targets.size(), 0)),
          device_scales_(backend, scales_),
          statistics_(backend, std::vector<ShardStatistics>((cuts.size() - 1) * targets.size())) {
        for (std::size_t lane = 0; lane + 1 < cuts.size(); ++lane) {
            firsts_.push_back(cuts[lane]);
            HostMatrix own(logits.rows, cuts[lane + 1] - cuts[lane]);
            for (std::int64_t i = 0; i < own.rows; ++i) {
                for (std::int64_t j = 0; j < own.cols; ++j) own(i, j) = logits(i, cuts[lane] + j);
            }
            lanes_.emplace_back(backend, own, static_cast<std::int64_t>(lane % 2) * 3);
        }
    }

    /// Fills the sums of every lane, which must have equal bits.
    void run(bool gradient, const TokenLoss& form = {}, float soft_cap = 0.0F) {
        for (const bool statistics : {true, false}) {
            for (std::size_t lane = 0; lane < lanes_.size(); ++lane) {
                const DeviceVector<double> loss(backend_, {1.0});
                const DeviceVector<double> wrong(backend_, {10.0});
                const ShardedCrossEntropy op{
                    {lanes_[lane].view(), targets_.data(), device_scales_.data(), bins_.data(),
                     loss.data(), wrong.data(), gradient, nullptr, form, soft_cap},
                    firsts_[lane],
                    firsts_.back() + lanes_.back().view().cols,
                    static_cast<std::int32_t>(lane),
                    static_cast<std::int32_t>(lanes_.size()),
                    statistics_.data()};
                if (statistics) {
                    backend_.shard_statistics(op);
                    continue;
                }
                backend_.sharded_cross_entropy(op);
                losses.push_back(loss.download()[0] - 1.0);
                wrongs.push_back(wrong.download()[0] - 10.0);
            }
        }
    }

    HostMatrix gradients() const {
        HostMatrix all(rows_, firsts_.back() + lanes_.back().view().cols);
        for (std::size_t lane = 0; lane < lanes_.size(); ++lane) {
            const HostMatrix own = lanes_[lane].download();
            for (std::int64_t i = 0; i < own.rows; ++i) {
                for (std::int64_t j = 0; j < own.cols; ++j) all(i, firsts_[lane] + j) = own(i, j);
            }
        }
        return all;
    }
    const std::vector<float>& scales() const { return scales_; }

    std::vector<double> losses;
    std::vector<double> wrongs;

  private:
    static std::vector<float> scales_of(std::size_t rows) {
        std::vector<float> scales;
        for (std::size_t i = 0; i < rows; ++i) scales.push_back(0.25F + static_cast<float>(i % 3));
        return scales;
    }

    Backend& backend_;
    std::int64_t rows_;
    std::vector<float> scales_;
    DeviceVector<std::int32_t> targets_;
    DeviceVector<std::int32_t> bins_;
    DeviceVector<float> device_scales_;
    DeviceVector<ShardStatistics> statistics_;
    std::vector<std::int64_t> firsts_;
    std::vector<DeviceMatrix> lanes_;
};

std::vector<std::int32_t> targets_of(const HostMatrix& logits) {
    std::vector<std::int32_t> targets;
    for (std::int64_t i = 0; i < logits.rows; ++i) {
        targets.push_back(
            static_cast<std::int32_t>(uniform_int(9, static_cast<std::uint64_t>(i), logits.cols)));
    }
    return targets;
}

class CrossEntropyShardsTest : public BackendTest {
  protected:
    void check(const HostMatrix& logits, const std::vector<std::int64_t>& cuts,
               const TokenLoss& form = {}, float soft_cap = 0.0F) {
        const std::vector<std::int32_t> targets = targets_of(logits);
        for (const bool gradient : {false, true}) {
            CrossEntropyShards shards(backend(), logits, cuts, targets);
            auto want =
                reference::cross_entropy(logits, targets, shards.scales(),
                                         std::vector<std::int32_t>(targets.size(), 0), 1, {}, form);
            for (std::size_t i = 0; soft_cap > 0.0F && i < logits.values.size(); ++i) {
                const double t = logits.values[i] / double{soft_cap};
                want.gradients.values[i] *= 1.0 - t * t;
            }
            shards.run(gradient, form, soft_cap);
            for (std::size_t lane = 0; lane + 1 < cuts.size(); ++lane) {
                EXPECT_EQ(shards.losses[lane], shards.losses[0]);
                EXPECT_EQ(shards.wrongs[lane], want.wrong_counts[0]);
            }
            expect_close({shards.losses[0]}, want.loss_sums, sum_tolerance_of(dtype()), "loss");
            if (!gradient) continue;
            expect_close(shards.gradients().values, want.gradients.values, tolerance_of(dtype()),
                         "d-logits");
        }
    }
};

TEST_P(CrossEntropyShardsTest, AgreeWithLoops) {
    check(random(1, 1, 3), {0, 1});
    check(random(9, 7, 3), {0, 3, 7});
    check(random(40, 77, 3), {0, 16, 48, 64, 77});
    check(random(33, 3001, 3), {0, 1504, 3001});
    HostMatrix sharp = random(50, 64, 3);
    for (double& value : sharp.values) value = reference::rounded_to(dtype(), value * 60.0);
    check(sharp, {0, 16, 32, 48, 64});
}

TEST_P(CrossEntropyShardsTest, OtherLossesOfTokensAgreeWithLoops) {
    for (const TokenLoss& form :
         {TokenLoss{0.2F, 0.0F, false}, TokenLoss{0.0F, 0.01F, true}, TokenLoss{0.1F, 0.02F, true},
          TokenLoss{0.0F, 0.0F, false, true}}) {
        check(random(9, 7, 3), {0, 3, 7}, form);
        check(random(33, 3001, 3), {0, 1504, 3001}, form);
    }
}

TEST_P(CrossEntropyShardsTest, GradientsOfCappedLogitsAreThoseBefore) {
    constexpr float cap = 3.0F;
    for (const TokenLoss& form : {TokenLoss{}, TokenLoss{0.3F, 0.02F, true}}) {
        for (const std::int64_t columns : {50, 3008}) {
            HostMatrix logits = random(33, columns, 3);
            for (double& value : logits.values) {
                value = reference::rounded_to(dtype(), cap * std::tanh(value));
            }
            check(logits, {0, 16, 32, columns}, form, cap);
        }
    }
}

TEST_P(CrossEntropyShardsTest, FirstOfEqualLogitsIsTheGuess) {
    const HostMatrix equal(4, 6, 0.5);
    CrossEntropyShards shards(backend(), equal, {0, 2, 4, 6}, {0, 1, 3, 5});
    shards.run(false);
    EXPECT_EQ(shards.wrongs, (std::vector<double>{3.0, 3.0, 3.0}));
}

TEST_P(CrossEntropyShardsTest, ALaneOfMinusInfinitiesAddsNothing) {
    HostMatrix logits = random(3, 12, 3);
    for (std::int64_t i = 0; i < 3; ++i) {
        for (std::int64_t j = 4; j < 8; ++j) logits(i, j) = -no_logit;
        for (std::int64_t j = 0; j < 12; ++j) {
            logits(i, j) = reference::rounded_to(dtype(), logits(i, j) - 1000.0);
        }
    }
    CrossEntropyShards shards(backend(), logits, {0, 4, 8, 12}, {1, 2, 9});
    shards.run(true);
    const auto want = reference::cross_entropy(logits, {1, 2, 9}, shards.scales(), {0, 0, 0}, 1);
    for (const double loss : shards.losses) {
        expect_close({loss}, want.loss_sums, sum_tolerance_of(dtype()), "loss");
    }
    EXPECT_EQ(shards.wrongs[2], want.wrong_counts[0]);
    expect_close(shards.gradients().values, want.gradients.values, tolerance_of(dtype()),
                 "d-logits");
    const TokenLoss entropy{0.0F, 0.0F, false, true};
    CrossEntropyShards of_entropies(backend(), logits, {0, 4, 8, 12}, {1, 2, 9});
    of_entropies.run(false, entropy);
    const auto entropies =
        reference::cross_entropy(logits, {1, 2, 9}, shards.scales(), {0, 0, 0}, 1, {}, entropy);
    for (const double sum : of_entropies.losses) {
        expect_close({sum}, entropies.loss_sums, sum_tolerance_of(dtype()), "entropy");
    }
}

TEST_P(CrossEntropyShardsTest, NotANumberStaysInItsRow) {
    for (const std::int64_t place : {1, 5}) {
        HostMatrix logits = random(2, 8, 3);
        logits(0, place) = std::numeric_limits<double>::quiet_NaN();
        CrossEntropyShards shards(backend(), logits, {0, 4, 8}, {3, 6});
        shards.run(true);
        EXPECT_TRUE(std::isnan(shards.losses[0]));
        EXPECT_TRUE(std::isnan(shards.losses[1]));
        const HostMatrix got = shards.gradients();
        for (std::int64_t j = 0; j < 8; ++j) {
            EXPECT_TRUE(std::isnan(got(0, j)));
            EXPECT_TRUE(std::isfinite(got(1, j)));
        }
    }
}

LORATRAIN_FOR_EACH_BACKEND(CrossEntropyShardsTest);

}  // namespace
}  // namespace loratrain
