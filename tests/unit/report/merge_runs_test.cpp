#include "report/merge_runs.h"

#include <gtest/gtest.h>

#include "base/error.h"

namespace loratrain::test {
namespace {

/// A run with a reference and these trials, by the objectives that they came to; "PRUNED" where
/// one is negative.
RunRecord shard(const std::string& dir, const std::vector<std::pair<std::string, double>>& trials) {
    RunRecord run;
    run.dir = dir;
    run.job.model.weights = "/base.h5";
    run.job.sweep.emplace();
    run.job.datasets.resize(1);
    run.job.datasets[0].name = "data";
    run.job.adapters.emplace_back().name = "default";
    run.results.push_back({AdapterId{0}, "DONE", {}});
    for (const auto& [name, value] : trials) {
        AdapterJob& adapter = run.job.adapters.emplace_back();
        adapter.name = name;
        adapter.trial = true;
        const auto id = static_cast<AdapterId>(run.job.adapters.size() - 1);
        run.results.push_back({id,
                               value < 0 ? "PRUNED" : "DONE",
                               {},
                               TrialResult{run.results.size(), std::abs(value), 1, ""}});
    }
    run.metrics.resize(run.job.adapters.size());
    return run;
}

std::vector<std::string> ranked(const RunRecord& run) {
    std::vector<std::string> names;
    for (const AdapterResult& result : run.results) {
        if (result.trial) names.push_back(run.job.adapter(result.adapter).name);
    }
    return names;
}

TEST(MergeRuns, RanksTheTrialsOfAllShardsTogether) {
    const RunRecord run =
        merge_runs("runs/s", {shard("runs/s/0", {{"a", 0.5}, {"c", 0.1}, {"e", -0.05}}),
                              shard("runs/s/1", {{"b", 0.3}, {"d", 0.1}})});
    std::vector<std::string> names;
    for (const AdapterJob& adapter : run.job.adapters) names.push_back(adapter.name);
    EXPECT_EQ(names, (std::vector<std::string>{"default", "a", "b", "c", "d", "e"}))
        << "the order of the space";
    EXPECT_EQ(ranked(run), (std::vector<std::string>{"c", "d", "b", "a", "e"}))
        << "equal ones by their order, what was pruned last";
    for (std::size_t i = 0; i < 5; ++i) EXPECT_EQ(run.results[i].trial->rank, i + 1);
    EXPECT_EQ(run.results[1].run, "1");
    EXPECT_EQ(run.metrics.size(), run.job.adapters.size());
    const std::string csv = results_csv(run.job, run.results);
    EXPECT_NE(csv.find(",1/adapters/d,2,"), std::string::npos) << csv;
}

TEST(MergeRuns, ExactMatchesAreBestWhenLargest) {
    std::vector<RunRecord> shards{shard("0", {{"a", 0.5}}), shard("1", {{"b", 0.75}})};
    for (RunRecord& run : shards) run.job.sweep->objective = SweepObjective::exact_match;
    EXPECT_EQ(ranked(merge_runs("s", shards)), (std::vector<std::string>{"b", "a"}));
}

TEST(MergeRuns, RefusesWhatIsNotOneSweep) {
    RunRecord other = shard("s/1", {{"a", 0.5}});
    other.job.sweep->objective = SweepObjective::exact_match;
    other.job.datasets[0].path = "/other.jsonl";
    RunRecord none = shard("s/2", {});
    none.job.sweep.reset();
    try {
        merge_runs("s", {shard("s/0", {{"a", 0.5}}), other, none});
        FAIL() << "nothing is thrown";
    } catch (const InputError& error) {
        const std::string text = error.what();
        for (const char* part : {"s/1: its sweep.objective", "s/1: its datasets",
                                 "trial a is in s/0 too", "s/2: is a run without a sweep"}) {
            EXPECT_NE(text.find(part), std::string::npos) << part << " in " << text;
        }
    }
}

}  // namespace
}  // namespace loratrain::test
