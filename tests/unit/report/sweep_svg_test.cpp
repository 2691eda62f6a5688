#include "report/sweep_svg.h"

#include <gtest/gtest.h>

#include "support/occurrences.h"

namespace loratrain::test {

TEST(SweepSvg, HasABarPerTrialAndABlockPerReplica) {
    Job job;
    for (const char* name : {"a<b", "c", "d"}) {
        AdapterJob adapter;
        adapter.name = name;
        job.adapters.push_back(adapter);
    }
    job.adapters[1].global_batch_size = 2;
    SweepDeployment deployment;
    deployment.plan.shape = {1, 2, 2, 512};
    deployment.plan.queues = {{AdapterId{0}, AdapterId{2}, AdapterId{1}}, {}};
    deployment.plan.queue_seconds = {400.0, 0.0};
    deployment.plan.seconds = 400.0;
    deployment.runs = {{400.0, {{0.0, 100.0}, {0.0, 400.0}, {100.0, 300.0}}}, {0.0, {}}};
    const std::string svg = sweep_svg(job, deployment);
    EXPECT_EQ(occurrences(svg, "<title>"), 3u);
    EXPECT_NE(svg.find("<title>a&lt;b: 0 s to 1 min 40 s</title>"), std::string::npos) << svg;
    EXPECT_NE(svg.find("2 x {tp: 1, pp: 2}, 6 min 40 s"), std::string::npos) << svg;
    EXPECT_NE(svg.find(">replica 1</text>"), std::string::npos) << svg;
    EXPECT_NE(svg.find(">batch 2</text>"), std::string::npos) << svg;
    EXPECT_NE(svg.find("time / min"), std::string::npos) << svg;
    // The third trial takes the line that the first one left.
    EXPECT_EQ(occurrences(svg, "y=\"34.00\" width"), 4u) << svg;
}

}  // namespace loratrain::test
