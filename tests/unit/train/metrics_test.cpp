#include "train/records/metrics.h"

#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>

#include "unit/train/run_folder.h"

namespace loratrain::test {
namespace {

class Metrics : public ::testing::Test {
  protected:
    void record(std::int32_t step, double loss) {
        StepMetrics metrics;
        metrics.step = step;
        metrics.loss = loss;
        metrics.tokens = 100 + step;
        log_.record(AdapterId{0}, metrics);
    }
    std::vector<nlohmann::json> lines() const {
        std::istringstream text(folder_.read(file_));
        std::vector<nlohmann::json> found;
        for (std::string line; std::getline(text, line);) {
            found.push_back(nlohmann::json::parse(line));
        }
        return found;
    }

    const std::string file_ = "adapters/first/metrics.jsonl";
    RunFolder folder_;
    MetricsLog log_{folder_.job};
};

TEST_F(Metrics, OneLinePerStepAfterFlush) {
    record(1, 2.5);
    record(2, 0.1);
    EXPECT_EQ(folder_.read(file_), "");
    log_.flush();
    record(3, 0.05);
    log_.flush();
    log_.flush();
    const auto found = lines();
    ASSERT_EQ(found.size(), 3U);
    EXPECT_EQ(found[0]["step"], 1);
    EXPECT_EQ(found[1]["loss"].get<double>(), 0.1);
    EXPECT_EQ(found[2]["tokens"], 103);
    for (const char* key : {"epoch", "grad_norm", "learning_rate", "target_tokens",
                            "tokens_per_second", "elapsed_seconds"}) {
        EXPECT_TRUE(found[0].contains(key)) << key;
    }
    EXPECT_FALSE(std::filesystem::exists(folder_.path("adapters/second/metrics.jsonl")));
}

TEST_F(Metrics, OfSeveralFilesHaveTheLossOfEach) {
    DatasetJob& dataset = folder_.job.datasets[0];
    dataset.files = {{"/a.jsonl", "a", 1.0}, {"/b.jsonl", "b \"2\"", 0.5}};
    record(1, 0.5);
    log_.flush();
    EXPECT_EQ(folder_.read(file_), "");
    log_.record_details(AdapterId{0}, 1, {}, {{4.0, 2.0}, {0.0, 0.0}});
    log_.record_evaluation(AdapterId{0}, 1, 3.0, 0.25, {{8.0, 2.0}, {2.0, 3.0}});
    log_.flush();
    const auto found = lines();
    ASSERT_EQ(found.size(), 1U);
    EXPECT_EQ(found[0]["loss/a"], 0.5);
    EXPECT_TRUE(found[0]["loss/b \"2\""].is_null());
    EXPECT_EQ(found[0]["eval_loss/a"], 0.25);
    EXPECT_EQ(found[0]["eval_loss/b \"2\""], 1.5);
    EXPECT_FALSE(found[0].contains("rewards/chosen"));
}

TEST_F(Metrics, StepsOfPairsWaitForTheirRewards) {
    folder_.job.adapters[0].loss.loss = Loss::dpo;
    log_.record_details(AdapterId{0}, 1, {2.0, 0.5, 0.75, -3.0, -4.0});
    record(1, 0.5);
    record(2, 0.25);
    record(3, 0.125);
    log_.record_details(AdapterId{0}, 3, {1.0, 0.0, 1.0, -3.0, -4.0});
    log_.flush();
    ASSERT_EQ(lines().size(), 1U);
    EXPECT_EQ(lines()[0]["rewards/chosen"], 2.0);
    EXPECT_EQ(lines()[0]["rewards/rejected"], 0.5);
    EXPECT_EQ(lines()[0]["rewards/accuracies"], 0.75);
    EXPECT_EQ(lines()[0]["rewards/margins"], 1.5);
    EXPECT_EQ(lines()[0]["logps/chosen"], -3.0);
    EXPECT_EQ(lines()[0]["logps/rejected"], -4.0);
    log_.record_details(AdapterId{0}, 2, {0.0, 0.5, 0.5, -3.0, std::nan("")});
    log_.record_evaluation(AdapterId{0}, 3, 0.5, RewardMeans{1.0, 0.5, 0.75, -1.0, -2.0});
    log_.flush();
    ASSERT_EQ(lines().size(), 3U);
    EXPECT_EQ(lines()[1]["rewards/margins"], -0.5);
    EXPECT_TRUE(lines()[1]["logps/rejected"].is_null());
    EXPECT_EQ(lines()[2]["rewards/chosen"], 1.0);
    EXPECT_EQ(lines()[2]["eval_rewards/accuracies"], 0.75);
    EXPECT_EQ(lines()[2]["eval_loss"], 0.5);
    EXPECT_FALSE(lines()[2].contains("eval_perplexity"));
}

TEST_F(Metrics, OfExamplesWithLabelsKl) {
    folder_.job.adapters[0].loss.loss = Loss::kto;
    log_.record_details(AdapterId{0}, 1, {2.0, std::nan(""), 0.0, -3.0, std::nan(""), 0.25});
    record(1, 0.5);
    log_.flush();
    ASSERT_EQ(lines().size(), 1U);
    EXPECT_EQ(lines()[0]["kl"], 0.25);
    EXPECT_TRUE(lines()[0]["rewards/margins"].is_null());
    EXPECT_FALSE(lines()[0].contains("rewards/accuracies"));
}

TEST_F(Metrics, OfRolloutsRatios) {
    LossJob& loss = folder_.job.adapters[0].loss;
    loss.loss = Loss::grpo;
    RewardMeans means;
    means.ratio = 1.25;
    means.largest_ratio = 3.5;
    means.clipped = 0.125;
    means.kl = 0.5;
    means.entropy = 2.25;
    log_.record_details(AdapterId{0}, 1, means);
    record(1, 0.5);
    loss.beta = 0.1;
    log_.record_details(AdapterId{0}, 2, means);
    record(2, 0.5);
    log_.flush();
    ASSERT_EQ(lines().size(), 2U);
    EXPECT_EQ(lines()[0]["ratio/mean"], 1.25);
    EXPECT_EQ(lines()[0]["ratio/max"], 3.5);
    EXPECT_EQ(lines()[0]["clip_ratio/region_mean"], 0.125);
    EXPECT_EQ(lines()[0]["entropy"], 2.25);
    EXPECT_FALSE(lines()[0].contains("kl"));
    EXPECT_EQ(lines()[1]["kl"], 0.5);
}

TEST_F(Metrics, EvaluationJoinsItsStep) {
    log_.record_evaluation(AdapterId{0}, 0, 3.0, 0.25);
    log_.flush();
    record(1, 2.5);
    record(2, 2.25);
    log_.record_evaluation(AdapterId{0}, 2, 2.75, 0.5);
    log_.flush();
    const auto found = lines();
    ASSERT_EQ(found.size(), 3U);
    EXPECT_EQ(found[0]["eval_loss"], 3.0);
    EXPECT_FALSE(found[0].contains("loss"));
    EXPECT_FALSE(found[1].contains("eval_loss"));
    EXPECT_EQ(found[2]["loss"], 2.25);
    EXPECT_EQ(found[2]["eval_exact_match"], 0.5);
}

TEST_F(Metrics, AnAwaitedEvaluationHoldsBackWhatIsBehindIt) {
    log_.await_evaluation(AdapterId{0}, 2);
    for (std::int32_t step = 1; step <= 3; ++step) record(step, 1.0);
    log_.flush();
    ASSERT_EQ(lines().size(), 2U);
    EXPECT_EQ(lines()[1]["step"], 2);
    EXPECT_TRUE(log_.flush().empty());
    log_.record_evaluation(AdapterId{0}, 2, 2.75, 0.5);
    record(4, 1.0);
    log_.flush();
    ASSERT_EQ(lines().size(), 5U);
    EXPECT_EQ(lines()[2]["step"], 2);
    EXPECT_EQ(lines()[2]["eval_loss"], 2.75);
    EXPECT_EQ(lines()[3]["step"], 3);
    EXPECT_EQ(lines()[4]["step"], 4);
}

TEST_F(Metrics, StepsWaitForAnEvaluationBeforeTheFirst) {
    log_.await_first_evaluation(AdapterId{0});
    record(1, 1.0);
    log_.flush();
    EXPECT_TRUE(log_.flush().empty());
    log_.record_evaluation(AdapterId{0}, 0, 3.0, 0.25);
    log_.flush();
    ASSERT_EQ(lines().size(), 2U);
    EXPECT_EQ(lines()[0]["step"], 0);
    EXPECT_EQ(lines()[0]["eval_loss"], 3.0);
    EXPECT_EQ(lines()[1]["step"], 1);
}

TEST_F(Metrics, NumbersThatAreNotFiniteBecomeNull) {
    record(1, std::numeric_limits<double>::quiet_NaN());
    log_.record_evaluation(AdapterId{0}, 1, std::numeric_limits<double>::infinity(), 0.0);
    log_.flush();
    EXPECT_TRUE(lines()[0]["loss"].is_null());
    EXPECT_TRUE(lines()[0]["eval_loss"].is_null());
}

TEST_F(Metrics, RestoreDropsLaterAndTornLines) {
    for (std::int32_t step = 1; step <= 4; ++step) record(step, 1.0 / step);
    log_.flush();
    const std::string whole = folder_.read(file_);
    const std::string upto2 = whole.substr(0, whole.find("{\"step\": 3"));
    folder_.write(file_, whole + "{\"step\": 2, \"lo");
    log_.restore(AdapterId{0}, 2);
    EXPECT_EQ(folder_.read(file_), upto2);
    log_.restore(AdapterId{0}, 4);
    EXPECT_EQ(folder_.read(file_), upto2);
    folder_.write(file_, upto2 + "{\"step\": 3, \"epoch\": 0.");
    log_.restore(AdapterId{0}, 3);
    EXPECT_EQ(folder_.read(file_), upto2);
    log_.restore(AdapterId{0}, -1);
    EXPECT_EQ(folder_.read(file_), "");
    log_.restore(AdapterId{1}, 3);
}

TEST_F(Metrics, RowsWrittenAndKeptAreReturned) {
    log_.record_evaluation(AdapterId{0}, 0, 3.0, 0.25);
    record(1, 2.5);
    record(2, std::numeric_limits<double>::infinity());
    const auto written = log_.flush();
    ASSERT_EQ(written.size(), 1U);
    const std::vector<MetricsRow>& rows = written.at(AdapterId{0});
    ASSERT_EQ(rows.size(), 3U);
    EXPECT_EQ(rows[0].eval_loss, 3.0);
    EXPECT_FALSE(rows[0].loss);
    EXPECT_EQ(rows[1].loss, 2.5);
    EXPECT_EQ(rows[1].tokens, 101.0);
    EXPECT_TRUE(std::isnan(rows[2].loss.value()));
    EXPECT_TRUE(log_.flush().empty());
    const auto kept = log_.restore(AdapterId{0}, 1);
    ASSERT_EQ(kept.size(), 2U);
    EXPECT_EQ(kept[1].loss, 2.5);
    EXPECT_TRUE(log_.restore(AdapterId{1}, 5).empty());
}

TEST_F(Metrics, AnEvaluationThatIsMadeAgainIsWrittenOnce) {
    record(1, 2.5);
    record(2, 2.25);
    log_.flush();
    log_.record_evaluation(AdapterId{0}, 2, 3.0, 0.25);
    log_.flush();
    const std::string once = folder_.read(file_);
    log_.record_evaluation(AdapterId{0}, 2, 3.0, 0.25);
    log_.flush();
    EXPECT_EQ(folder_.read(file_), once);
    MetricsLog next{folder_.job};
    next.restore(AdapterId{0}, 2);
    next.record_evaluation(AdapterId{0}, 2, 3.0 + 1e-9, 0.25);  // packed otherwise
    next.flush();
    EXPECT_EQ(folder_.read(file_), once);
    next.record_evaluation(AdapterId{0}, 2, 3.5, 0.25);  // of other samples
    next.flush();
    EXPECT_EQ(lines().size(), 4U);
}

TEST_F(Metrics, EvaluationsOfStepsThatAreTakenAgainWaitForThem) {
    for (int step = 1; step <= 4; ++step) record(step, 1.0 / step);
    log_.flush();
    log_.record_evaluation(AdapterId{0}, 4, 3.0, 0.25);
    log_.flush();
    const std::string whole = folder_.read(file_);
    for (const int steps : {2, 1}) {  // twice, before it has come there again
        MetricsLog next{folder_.job};
        EXPECT_EQ(next.restore(AdapterId{0}, steps, {4}).size(), static_cast<std::size_t>(steps));
        EXPECT_EQ(lines().size(), static_cast<std::size_t>(steps) + 1);
    }
    MetricsLog last{folder_.job};
    last.restore(AdapterId{0}, 1, {4});
    for (int step = 2; step <= 4; ++step) {
        StepMetrics metrics;
        metrics.step = step;
        metrics.loss = 1.0 / step;
        metrics.tokens = 100 + step;
        last.record(AdapterId{0}, metrics);
        last.flush();
    }
    EXPECT_EQ(folder_.read(file_), whole);
    MetricsLog again{folder_.job};
    again.restore(AdapterId{0}, 2);  // by a rule without decisions it is evaluated again
    EXPECT_EQ(lines().size(), 2U);
}

}  // namespace
}  // namespace loratrain::test
