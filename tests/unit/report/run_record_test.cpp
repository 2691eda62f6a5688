#include "report/run_record.h"

#include <gtest/gtest.h>

#include "base/error.h"
#include "config/job_yaml.h"
#include "report/report_page.h"
#include "support/files.h"

namespace loratrain {
namespace {

using test::put;

class RunRecords : public ::testing::Test {
  protected:
    void SetUp() override {
        Job job;
        job.model.weights = "/base.h5";
        job.run.dir = dir_.path();
        job.datasets.resize(1);
        job.datasets[0].name = "data";
        job.datasets[0].path = "/data.jsonl";
        job.adapters.resize(1);
        job.adapters[0].name = "one";
        put(dir_.file("resolved.yaml"), to_yaml(job));
        std::filesystem::create_directories(dir_.file("adapters/one"));
        put(dir_.file("adapters/one/metrics.jsonl"), "{\"step\": 1, \"loss\": 2.5}\n");
    }
    std::string page() const { return report_page(read_run(dir_.path()), 1e9); }

    test::TempDir dir_;
};

TEST_F(RunRecords, WhatCannotBeReadIsLeftOut) {
    const std::string deep = std::string(100000, '[') + std::string(100000, ']');
    const std::string texts[] = {"",
                                 "{",
                                 "[1]",
                                 "{\"starts\": \"x\"}",
                                 "{\"starts\": [1, [], {\"started\": {}}]}",
                                 "{\"starts\": " + deep + "}",
                                 deep,
                                 "[{\"allocated\": \"x\"}]",
                                 "{\"traceEvents\": [1]}",
                                 "adapters: [{}]"};
    for (const char* name :
         {"provenance.json", "memory.json", "status.json", "trace.json", "plan.yaml"}) {
        for (const std::string& text : texts) {
            put(dir_.file(name), text);
            EXPECT_NE(page().find("Provenance"), std::string::npos) << name;
        }
        std::filesystem::remove(dir_.file(name));
        std::filesystem::create_directories(dir_.file(name));
        EXPECT_NO_THROW(page()) << name << " is a folder";
        std::filesystem::remove(dir_.file(name));
    }
    EXPECT_EQ(page().find("over time"), std::string::npos);
    std::filesystem::create_directories(dir_.file("devices/rank-1.jsonl"));
    put(dir_.file("devices/rank-0.jsonl"), "[1]\n" + deep + "\n{\"time\": 1");
    EXPECT_EQ(page().find("over time"), std::string::npos);
    put(dir_.file("devices/rank-0.jsonl"), to_line({1000.0, 1.0, 0, 2, 3}) + "\n{\"time\": 1");
    EXPECT_NE(page().find("Memory and devices over time"), std::string::npos);
    put(dir_.file("status.json"), "[]");
    EXPECT_THROW(read_status(dir_.path()), InputError);
    put(dir_.file("resolved.yaml"), "[]");
    EXPECT_THROW(page(), InputError);
}

}  // namespace
}  // namespace loratrain
