#include "measure/profile_links.h"

#include <gtest/gtest.h>

#include "base/text.h"
#include "plan/cost/host_links.h"
#include "plan/place.h"
#include "plan/text/describe_prediction.h"
#include "support/problems.h"

namespace loratrain {
namespace {

using Pairs = std::vector<RankPair>;
using Hosts = std::vector<std::string>;

Plan plan_of(const std::vector<std::pair<std::int32_t, std::size_t>>& lanes_and_stages) {
    Plan plan;
    for (const auto& [lanes, stages] : lanes_and_stages) {
        ReplicaPlan& replica = plan.replicas.emplace_back();
        replica.tensor = lanes;
        replica.stages.resize(stages);
    }
    number_ranks(plan.replicas);
    return plan;
}

std::vector<LinkBetweenHosts> links_of(const std::vector<double>& seconds_per_megabyte) {
    std::vector<LinkBetweenHosts> links;
    for (const double seconds : seconds_per_megabyte) {
        const auto number = links.size();
        links.push_back({cat("node", number), cat("node", number + 1), {20e-6, seconds / 1e6}});
    }
    return links;
}

TEST(LinksBetweenHosts, OnOneHostThereAreNone) {
    EXPECT_EQ(pairs_between_hosts(plan_of({{1, 4}}), Hosts(4, "a")), Pairs{});
    EXPECT_EQ(pairs_between_hosts(plan_of({{1, 1}, {1, 1}}), Hosts(2, "a")), Pairs{});
}

TEST(LinksBetweenHosts, ArePairsOfNeighboursOnceForTwoHosts) {
    EXPECT_EQ(pairs_between_hosts(plan_of({{1, 6}}), Hosts{"a", "a", "b", "b", "c", "c"}),
              (Pairs{{1, 2}, {3, 4}}));
    EXPECT_EQ(pairs_between_hosts(plan_of({{1, 4}}), Hosts{"a", "b", "a", "b"}), (Pairs{{0, 1}}));
    EXPECT_EQ(pairs_between_hosts(plan_of({{2, 2}}), Hosts{"a", "a", "b", "b"}), (Pairs{{0, 2}}));
}

TEST(LinksBetweenHosts, WhereReplicasSumAreThoseOfHostsThatFollowEachOther) {
    EXPECT_EQ(pairs_between_hosts(plan_of({{1, 2}, {1, 2}}), Hosts{"a", "a", "b", "b"}),
              (Pairs{{0, 2}}));
    EXPECT_EQ(pairs_between_hosts(plan_of({{1, 3}, {1, 1}, {1, 1}, {1, 1}}),
                                  Hosts{"a", "a", "b", "b", "c", "c"}),
              (Pairs{{1, 2}, {2, 4}}));
}

TEST(LinksBetweenHosts, OneThatIsFarSlowerThanTheOthersIsNamed) {
    EXPECT_TRUE(slow_links({}).empty());
    EXPECT_TRUE(slow_links(links_of({1.0})).empty());
    EXPECT_TRUE(slow_links(links_of({1e-3, 2.9e-3})).empty());
    EXPECT_TRUE(slow_links(links_of({1e-3, 2e-3, 1e-3, 2.5e-3})).empty());
    const std::vector<std::string> one = slow_links(links_of({1e-3, 1e-3, 80e-3, 1e-3}));
    ASSERT_EQ(one.size(), 1U);
    EXPECT_EQ(one[0],
              "the link between node2 and node3 is slow: 12.5 MB/s, 20 us, where the other "
              "links between hosts have 1.00 GB/s, 20 us in the median");
    EXPECT_EQ(slow_links(links_of({5e-3, 1e-3})).size(), 1U);

    std::vector<LinkBetweenHosts> far = links_of({1e-3, 1e-3, 1e-3});
    far[1].cost.fixed = 0.1;
    ASSERT_EQ(slow_links(far).size(), 1U);
    EXPECT_TRUE(test::has(slow_links(far)[0], "node1 and node2 is slow: 1.00 GB/s, 100000 us"));
}

TEST(LinksBetweenHosts, AreReportedOrTheSlowestAre) {
    EXPECT_EQ(links_text(links_of({1e-3, 2e-3})),
              "node0 - node1 1.00 GB/s, 20 us; node1 - node2 500.0 MB/s, 20 us");
    std::vector<double> many(20, 1e-3);
    many[13] = 4e-3;
    const std::string text = links_text(links_of(many));
    EXPECT_TRUE(text.starts_with("node13 - node14 250.0 MB/s, 20 us; node0 - node1 ")) << text;
    EXPECT_TRUE(text.ends_with("; 12 more are faster")) << text;
    EXPECT_EQ(usual_cost(links_of(many)).per_byte, 1e-9);
}

TEST(LinksBetweenHosts, PredictionsSayWhatTheyTakeThemFor) {
    Job job;
    Plan plan = plan_of({{1, 4}});
    plan.costs.message.fixed = 3e-6;
    plan.costs.message.per_byte = 0.2e-9;
    Cluster cluster;
    cluster.ranks = cluster.ranks_per_node = 4;
    EXPECT_EQ(describe_links(job, plan, cluster), "");
    cluster.ranks_per_node = 2;
    const auto taken = [&] {
        CostModel costs = plan.costs;
        add_hosts(job, cluster, costs);
        plan.costs.between_hosts = costs.between_hosts;
    };
    taken();
    EXPECT_EQ(describe_links(job, plan, cluster),
              "messages    inside a host 5.00 GB/s, 3 us; between 2 hosts 1.00 GB/s, 30 us, built "
              "in; cluster.between_hosts says otherwise\n");
    plan.costs.between_hosts = LinkCost{40e-6, 1e-9};
    EXPECT_EQ(describe_links(job, plan, cluster),
              "messages    inside a host 5.00 GB/s, 3 us; between 2 hosts 1.00 GB/s, 40 us, "
              "measured\n");
    cluster.ranks_per_node = 1;
    job.cluster.between_hosts.gigabytes_per_second = 25.0;
    taken();
    EXPECT_EQ(describe_links(job, plan, cluster),
              "messages    between 4 hosts 25.00 GB/s, 30 us, as cluster.between_hosts says\n");
}

}  // namespace
}  // namespace loratrain
