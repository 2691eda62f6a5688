#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "base/error.h"
#include "io/run_files/device_samples.h"
#include "io/run_files/results_file.h"
#include "io/run_files/status_file.h"

namespace loratrain {
namespace {

const double nan_value = std::numeric_limits<double>::quiet_NaN();

MetricsSummary summary_of(const std::vector<std::string>& lines) {
    MetricsSummary summary;
    for (const std::string& line : lines) summary.add(metrics_row(line).value());
    return summary;
}

TEST(MetricsFile, TornLinesAreNoRows) {
    EXPECT_FALSE(metrics_row("{\"step\": 2, \"lo"));
    EXPECT_FALSE(metrics_row("[]"));
    EXPECT_FALSE(metrics_row("{\"loss\": 1}"));
    EXPECT_FALSE(metrics_row(""));
    EXPECT_FALSE(metrics_row("{\"step\": 1099511627776}"));
    EXPECT_FALSE(metrics_row("{\"step\": -1}"));
    EXPECT_FALSE(metrics_row("{\"step\": 1.5}"));
    EXPECT_FALSE(metrics_row("{\"step\": null}"));
    EXPECT_FALSE(metrics_row("{\"step\": 1, \"x\": " + std::string(1000, '[') +
                             std::string(1000, ']') + "}"));
}

TEST(MetricsFile, KeysOfTextsAreKeptByTheirNames) {
    const MetricsRow row =
        metrics_row(
            R"({"step": 3, "loss": 1, "reward": 0.5, "reward_std": 0.25, )"
            R"("frac_reward_zero_std": 0, "completions/mean_length": 7.5, )"
            R"("rewards/format/mean": 1, "sample_seconds": 0.125, "ratio/mean": 1, )"
            R"("ratio/max": 1.5, "entropy": 0.75, "rewards/margins": 2, "rewards/lost/mean": null})")
            .value();
    EXPECT_EQ(row.reward, 0.5);
    EXPECT_EQ(row.of_texts,
              (std::vector<std::pair<std::string, double>>{{"reward_std", 0.25},
                                                           {"frac_reward_zero_std", 0.0},
                                                           {"completions/mean_length", 7.5},
                                                           {"rewards/format/mean", 1.0},
                                                           {"sample_seconds", 0.125},
                                                           {"ratio/max", 1.5},
                                                           {"entropy", 0.75}}));
}

TEST(DeviceSamples, ComeBackAsTheyWereWritten) {
    DeviceSample sample{1764147280.06, 12.34, 3, std::uint64_t{1} << 40U, 2};
    std::string text = to_line(sample) + "\n";
    sample.gpu.watts = 612.345;
    sample.gpu.sm_mhz = 1755.0;
    sample.gpu.used_bytes = 5;
    sample.gpu.slowed_by_heat = true;
    text += to_line(sample) + "\n" + to_line(sample).substr(0, 30);
    const std::vector<DeviceSample> read = device_samples(text);
    ASSERT_EQ(read.size(), 2U);
    EXPECT_DOUBLE_EQ(read[0].time, 1764147280.1);
    EXPECT_DOUBLE_EQ(read[0].seconds, 12.3);
    EXPECT_EQ(read[0].rank, 3);
    EXPECT_EQ(read[0].resident_bytes, std::uint64_t{1} << 40U);
    EXPECT_EQ(read[0].allocated_bytes, 2U);
    EXPECT_FALSE(read[0].gpu.watts || read[0].gpu.used_bytes || read[0].gpu.slowed_by_heat);
    EXPECT_EQ(read[1].gpu.watts, 612.3);
    EXPECT_EQ(read[1].gpu.sm_mhz, 1755.0);
    EXPECT_FALSE(read[1].gpu.celsius || read[1].gpu.slowed_by_power);
    EXPECT_EQ(read[1].gpu.used_bytes, 5U);
    EXPECT_EQ(read[1].gpu.slowed_by_heat, true);
    EXPECT_EQ(device_file_name(12), "rank-12.jsonl");
}

TEST(DeviceSamples, LeaveOutWhatIsNone) {
    const std::string good = to_line({100.0, 10.0, 0, 1, 1});
    EXPECT_EQ(device_samples(good).size(), 1U);
    const auto with = [&](const std::string& what, const std::string& other) {
        std::string text = good;
        const std::size_t at = text.find(what);
        EXPECT_NE(at, std::string::npos) << good;
        return device_samples(text.replace(at, what.size(), other)).size();
    };
    EXPECT_EQ(with("100.0", "\"x\""), 0U);
    EXPECT_EQ(with("100.0", "-1"), 0U);
    EXPECT_EQ(with("100.0", "1e300"), 0U);
    EXPECT_EQ(with("10.0", "1000"), 0U) << "longer than since 1970";
    EXPECT_EQ(with("\"rank\":0", "\"rank\":-1"), 0U);
    EXPECT_EQ(with("\"rank\":0", "\"rank\":0,\"watts\":\"x\""), 0U);
    EXPECT_EQ(with("\"rank\":0", "\"rank\":0,\"used_bytes\":-5"), 0U);
    EXPECT_EQ(with("\"resident_bytes\":1", "\"resident_bytes\":1.5"), 0U);
    EXPECT_EQ(with("\"resident_bytes\":1,", ""), 0U);
    EXPECT_EQ(device_samples("[]\n\nnull\n" + std::string(100000, '[') + "\n").size(), 0U);
}

TEST(MetricsFile, NullIsNotFiniteAndAbsentIsEmpty) {
    const MetricsRow row = metrics_row("{\"step\": 7, \"loss\": null}").value();
    EXPECT_EQ(row.step, 7);
    EXPECT_TRUE(std::isnan(row.loss.value()));
    EXPECT_FALSE(row.eval_loss);
}

TEST(MetricsFile, Summary) {
    const MetricsSummary s = summary_of({
        R"({"step": 0, "eval_loss": 4.0, "eval_exact_match": 0.0})",
        R"({"step": 1, "loss": 3.0, "tokens": 10, "elapsed_seconds": 1.5})",
        R"({"step": 2, "loss": 1.0, "tokens": 20, "elapsed_seconds": 2.5, "eval_loss": 2.0})",
        R"({"step": 3, "loss": null, "tokens": 30, "elapsed_seconds": 3.5})",
        R"({"step": 4, "loss": 2.0, "tokens": 5, "elapsed_seconds": 4.5, "eval_loss": 3.0,
            "eval_exact_match": 0.5})",
    });
    EXPECT_EQ(s.steps, 4);
    EXPECT_EQ(s.last_loss, 2.0);
    EXPECT_EQ(s.losses.values().size(), 4U);
    EXPECT_EQ(s.best_loss, 1.0);
    EXPECT_EQ(s.first_eval_loss, 4.0);
    EXPECT_EQ(s.last_eval_loss, 3.0);
    EXPECT_EQ(s.best_eval_loss, 2.0);
    EXPECT_EQ(s.last_exact_match, 0.5);
    EXPECT_EQ(s.tokens, 65.0);
    EXPECT_EQ(s.seconds, 4.5);
}

TEST(MetricsFile, OfLossesOfPairsTheAccuracyIsThatOfRewards) {
    const MetricsSummary s = summary_of({
        R"({"step": 0, "eval_loss": 0.7, "eval_rewards/accuracies": 0.0})",
        R"({"step": 4, "eval_loss": 0.3, "eval_rewards/accuracies": 0.75})",
    });
    EXPECT_EQ(s.last_exact_match, 0.75);
}

TEST(Accuracy, IsNamedAfterTheLosses) {
    std::vector<AdapterJob> adapters(2);
    EXPECT_EQ(accuracy_name(adapters), "exact match");
    adapters[0].loss.loss = Loss::dpo;
    EXPECT_EQ(accuracy_name(adapters), "accuracy");
    adapters[1].loss.loss = Loss::orpo;
    EXPECT_EQ(accuracy_name(adapters), "reward accuracy");
    adapters[1].loss.loss = Loss::kto;
    EXPECT_EQ(accuracy_name(adapters), "accuracy");
}

AdapterResult result(int adapter, std::optional<double> loss, std::optional<double> eval) {
    AdapterResult made{static_cast<AdapterId>(adapter), "DONE", {}};
    if (loss) made.summary.losses.add(*loss);
    made.summary.last_eval_loss = eval;
    return made;
}

std::vector<std::size_t> sorted(const Job& job) {
    std::vector<AdapterResult> results{
        result(0, 1.0, {}),  result(1, 0.5, nan_value), result(2, 9.0, 2.0),
        result(3, 9.0, 1.0), result(4, {}, {}),
    };
    sort_results(job, results);
    std::vector<std::size_t> order;
    for (const AdapterResult& r : results) order.push_back(index(r.adapter));
    return order;
}

TEST(ResultsFile, SortedByEvalLossThenTrainingLoss) {
    Job job;
    job.adapters.resize(5);
    EXPECT_EQ(sorted(job), (std::vector<std::size_t>{3, 2, 1, 0, 4}));
}

TEST(ResultsFile, DatasetsAreNotMixed) {
    Job job;
    job.adapters.resize(5);
    job.adapters[3].dataset = DatasetId{1};
    job.adapters[1].dataset = DatasetId{1};
    EXPECT_EQ(sorted(job), (std::vector<std::size_t>{2, 0, 4, 3, 1}));
}

TEST(ResultsFile, QuotesAndEmptyFields) {
    Job job;
    job.datasets.resize(1);
    job.datasets[0].name = "org/\"set\", v1";
    job.adapters.resize(1);
    job.adapters[0].name = "a";
    job.adapters[0].r = 8;
    job.adapters[0].lora_alpha = 16;
    job.adapters[0].learning_rate = 2.5e-3;
    AdapterResult r = result(0, 0.5, nan_value);
    r.status = "FAILED";
    r.summary.steps = 3;
    r.summary.tokens = 1234567.0;
    r.summary.seconds = 1.25;
    const std::string text = results_csv(job, {r});
    EXPECT_EQ(text.substr(text.find('\n') + 1),
              "a,FAILED,\"org/\"\"set\"\", v1\",8,16,0.0025,3,0.5,,,nan,,,1234567,1.250,"
              "adapters/a\n");
    const std::string head = text.substr(0, text.find('\n'));
    EXPECT_EQ(std::count(head.begin(), head.end(), ','), 15);
}

TEST(StatusFile, ComesBack) {
    RunStatus status;
    status.state = "running";
    status.reason = "a \"reason\"\n\xff";
    status.round = 3;
    status.rounds = 9;
    status.elapsed_seconds = 12.5;
    status.tokens_per_second = 99.5;
    status.seconds_per_round = 0.25;
    status.host = "node";
    status.pid = 42;
    status.ranks = 2;
    status.updated = 1700000000.25;
    status.adapters = {{"z", "RUNNING", 3, 9, nan_value, {}, 0.5, 7},
                       {"a", "DONE", 4, 4, 1.0, 2.0, {}}};
    const RunStatus again = run_status_from_json(to_json(status), "here");
    EXPECT_EQ(again.state, "running");
    EXPECT_EQ(again.reason, "a \"reason\"\n\xef\xbf\xbd");
    EXPECT_EQ(again.round, 3);
    EXPECT_EQ(again.rounds, 9);
    EXPECT_EQ(again.elapsed_seconds, 12.5);
    EXPECT_EQ(again.tokens_per_second, 99.5);
    EXPECT_EQ(again.seconds_per_round, 0.25);
    EXPECT_FALSE(again.seconds_left);
    EXPECT_EQ(again.host, "node");
    EXPECT_EQ(again.pid, 42);
    EXPECT_EQ(again.ranks, 2);
    EXPECT_EQ(again.updated, 1700000000.25);
    ASSERT_EQ(again.adapters.size(), 2U);
    EXPECT_EQ(again.adapters[0].name, "z");
    EXPECT_FALSE(again.adapters[0].loss);
    EXPECT_EQ(again.adapters[0].eval_exact_match, 0.5);
    EXPECT_EQ(again.adapters[0].priority, 7);
    EXPECT_EQ(again.adapters[1].priority, 0);
    EXPECT_EQ(again.adapters[1].eval_loss, 2.0);
    EXPECT_EQ(again.adapters[1].total_steps, 4);
}

TEST(StatusFile, DamageIsNamed) {
    for (const char* text : {"", "{\"state\": \"running\"}", "[]", "{\"state\": 1}"}) {
        try {
            run_status_from_json(text, "runs/a/status.json");
            ADD_FAILURE() << text;
        } catch (const InputError& error) {
            EXPECT_EQ(error.problems().front().where, "runs/a/status.json");
        }
    }
}

TEST(StatusFile, NumbersOutOfRangeAndNamesOfNoAdapter) {
    RunStatus status;
    status.state = "running";
    status.adapters = {{"math", "RUNNING", 3, 9, {}, {}, {}, 7}};
    const std::string good = to_json(status);
    EXPECT_NO_THROW(run_status_from_json(good, "x"));
    const std::pair<const char*, const char*> changes[] = {
        {"\"round\": 0", "\"round\": 1099511627776"},
        {"\"rounds\": 0", "\"rounds\": -1"},
        {"\"step\": 3", "\"step\": 1e300"},
        {"\"pid\": 0", "\"pid\": -7"},
        {"\"ranks\": 1", "\"ranks\": \"1\""},
        {"\"math\"", "\"../..\""},
        {"\"math\"", "\"a\\u001b[2J\""},
        {"\"math\"", "\"\""}};
    for (const auto& [from, to] : changes) {
        std::string bad = good;
        ASSERT_NE(bad.find(from), std::string::npos) << from;
        bad.replace(bad.find(from), std::string(from).size(), to);
        EXPECT_THROW(run_status_from_json(bad, "x"), InputError) << to;
    }
}

}  // namespace
}  // namespace loratrain
