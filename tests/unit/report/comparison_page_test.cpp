#include "report/report_page.h"

#include <gtest/gtest.h>

#include "base/error.h"
#include "config/job_yaml.h"
#include "support/files.h"
#include "support/occurrences.h"

namespace loratrain {
namespace {

using test::put;

/// A run of an adapter "shared" and one of its own name.
class WrittenRun {
  public:
    WrittenRun(const std::string& own, const std::string& metrics) {
        Job job;
        job.model.weights = "/base.h5";
        job.run.dir = dir_.path();
        job.datasets.resize(1);
        job.datasets[0].name = "data";
        job.datasets[0].path = "/data.jsonl";
        job.adapters.resize(2);
        job.adapters[0].name = "shared";
        job.adapters[1].name = own;
        put(dir_.file("resolved.yaml"), to_yaml(job));
        std::filesystem::create_directories(dir_.file("adapters/shared"));
        put(dir_.file("adapters/shared/metrics.jsonl"), metrics);
    }
    RunRecord read() const { return read_run(dir_.path()); }

  private:
    test::TempDir dir_;
};

const char* const steps =
    "{\"step\": 1, \"loss\": 2.5, \"grad_norm\": 1, \"tokens\": 30, \"elapsed_seconds\": 1}\n"
    "{\"step\": 2, \"loss\": 2.25, \"grad_norm\": 2, \"tokens\": 50, \"elapsed_seconds\": 4}\n";

TEST(ComparisonPage, ComparesAdaptersOfOneName) {
    const WrittenRun first("alone", steps);
    const WrittenRun second("other", steps);
    const std::string page = comparison_page({first.read(), second.read()}, 1e9);
    EXPECT_EQ(test::occurrences(page, "<h3>"), 1U);
    EXPECT_NE(page.find("<h3>shared</h3>"), std::string::npos);
    EXPECT_EQ(test::occurrences(page, "<figure"), 2U);  // no evaluation: loss and norm
    EXPECT_NE(page.find("<td>alone</td>"), std::string::npos);
    EXPECT_NE(page.find(">20<"), std::string::npos) << "80 tokens in 4 s";
}

TEST(ComparisonPage, SaysWhenNothingCompares) {
    const WrittenRun first("a", steps);
    const WrittenRun second("b", "");
    const std::string page = comparison_page({first.read(), second.read()}, 1e9);
    EXPECT_EQ(page.find("<figure"), std::string::npos);
    EXPECT_NE(page.find("No adapter has the same name"), std::string::npos);
}

}  // namespace
}  // namespace loratrain
