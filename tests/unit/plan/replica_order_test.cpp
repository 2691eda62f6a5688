
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <random>
#include <set>
#include <tuple>

#include "plan/place.h"
#include "plan/text/plan_text.h"
#include "unit/plan/deployment_cases.h"

namespace loratrain::plan_test {

namespace {

using Ranks = std::vector<std::int32_t>;
using ReplicaCuts = std::vector<ReplicaCut>;

/// Hosts of so many ranks each.
Ranks hosts_with(const Ranks& counts) {
    Ranks hosts;
    for (std::size_t h = 0; h < counts.size(); ++h) {
        hosts.insert(hosts.end(), static_cast<std::size_t>(counts[h]),
                     static_cast<std::int32_t>(h));
    }
    return hosts;
}

ReplicaCuts pipelines_of(const Ranks& sizes) {
    ReplicaCuts cuts;
    for (const std::int32_t size : sizes) cuts.push_back({1, size});
    return cuts;
}

/// Stages, replicas and neighbours on several hosts.
using Counted = std::tuple<std::int64_t, std::int64_t, std::int64_t>;

Counted count_apart(const ReplicaCuts& cuts, const Ranks& first, const Ranks& hosts) {
    const auto hosts_of_ranks = [&](std::int32_t rank, std::int32_t ranks) {
        return std::ssize(std::set(hosts.begin() + rank, hosts.begin() + rank + ranks));
    };
    Counted counted{};
    for (std::size_t r = 0; r < cuts.size(); ++r) {
        for (std::int32_t s = 0; s < cuts[r].stages; ++s) {
            const std::int32_t stage = first[r] + s * cuts[r].tensor;
            std::get<0>(counted) += hosts_of_ranks(stage, cuts[r].tensor) > 1 ? 1 : 0;
        }
        const auto of_replica = hosts_of_ranks(first[r], cuts[r].ranks());
        std::get<1>(counted) += of_replica > 1 ? 1 : 0;
        std::get<2>(counted) += of_replica - 1;
    }
    return counted;
}

Ranks in_order(const ReplicaCuts& cuts, const std::vector<std::size_t>& order) {
    Ranks first(cuts.size(), 0);
    std::int32_t rank = 0;
    for (const std::size_t r : order) {
        first[r] = rank;
        rank += cuts[r].ranks();
    }
    return first;
}

Counted fewest_apart(const ReplicaCuts& cuts, const Ranks& hosts) {
    std::vector<std::size_t> order(cuts.size());
    std::iota(order.begin(), order.end(), 0U);
    Counted fewest = count_apart(cuts, in_order(cuts, order), hosts);
    while (std::next_permutation(order.begin(), order.end())) {
        fewest = std::min(fewest, count_apart(cuts, in_order(cuts, order), hosts));
    }
    return fewest;
}

Case unlike_pipelines(const Ranks& sizes, int ranks_per_node) {
    Case test = uniform_case(3, std::accumulate(sizes.begin(), sizes.end(), 0), 48, 10, 12);
    test.model = cheap_head_model(8);
    test.cluster.ranks_per_node = ranks_per_node;
    for (const std::int32_t size : sizes) {
        ReplicaJob& replica = test.job.parallel.deployment.emplace_back();
        replica.stages = size;
    }
    return test;
}

}  // namespace

TEST(ReplicaOrder, NoReplicaIsOnTwoHostsWhereOneOrderAvoidsIt) {
    const Ranks hosts = hosts_with({4, 4});
    EXPECT_EQ(first_ranks(pipelines_of({1, 3, 4}), hosts), (Ranks{0, 1, 4}));
    EXPECT_EQ(first_ranks(pipelines_of({2, 4, 2}), hosts), (Ranks{0, 4, 2}));
    EXPECT_EQ(first_ranks(pipelines_of({1, 4, 3}), hosts), (Ranks{0, 4, 1}));
}

TEST(ReplicaOrder, AsFewAsCanBeElse) {
    const Ranks hosts = hosts_with({4, 4});
    EXPECT_EQ(first_ranks(pipelines_of({3, 3, 2}), hosts), (Ranks{0, 3, 6}));
    EXPECT_EQ(first_ranks(pipelines_of({5, 2, 1}), hosts), (Ranks{0, 5, 7}));
    EXPECT_EQ(first_ranks(pipelines_of({8}), hosts), Ranks{0});
}

TEST(ReplicaOrder, HostsMayBeUnlike) {
    EXPECT_EQ(first_ranks(pipelines_of({6, 2}), hosts_with({2, 6})), (Ranks{2, 0}));
    EXPECT_EQ(first_ranks(pipelines_of({2, 4, 1, 1}), hosts_with({1, 3, 4})), (Ranks{1, 4, 0, 3}));
}

/// Lanes come before whole replicas.
TEST(ReplicaOrder, LanesAreOnOneHostWhereStagesCannotBe) {
    EXPECT_EQ(first_ranks(ReplicaCuts{{2, 2}, {1, 1}, {1, 1}}, hosts_with({3, 3})),
              (Ranks{1, 0, 5}));
    EXPECT_EQ(first_ranks(ReplicaCuts{{2, 1}, {2, 1}, {1, 1}, {1, 1}}, hosts_with({3, 3})),
              (Ranks{0, 3, 2, 5}));
}

TEST(ReplicaOrder, StaysOnOneHostAndWhereThatIsAsGood) {
    const ReplicaCuts cuts{{4, 1}, {2, 3}, {1, 2}, {1, 5}, {1, 2}};
    const Ranks order{0, 4, 10, 12, 17};
    EXPECT_EQ(first_ranks(cuts, hosts_with({19})), order);
    EXPECT_EQ(first_ranks(cuts, {}), order);
    EXPECT_EQ(first_ranks(cuts, hosts_with({10, 9})), order);
    EXPECT_TRUE(first_ranks({}, hosts_with({2, 2})).empty());
}

TEST(ReplicaOrder, IsTheBestOfAllOrders) {
    std::mt19937 random(1);
    const auto draw = [&](int most) { return static_cast<std::int32_t>(random() % most) + 1; };
    int moved = 0;
    for (int trial = 0; trial < 300; ++trial) {
        ReplicaCuts cuts;
        std::int32_t ranks = 0;
        for (int r = draw(6); r > 0; --r) {
            cuts.push_back({draw(3), draw(3)});
            ranks += cuts.back().ranks();
        }
        Ranks hosts;
        for (std::int32_t host = 0; std::ssize(hosts) < ranks; ++host) {
            hosts.insert(hosts.end(), static_cast<std::size_t>(draw(6)), host);
        }
        const Ranks first = first_ranks(cuts, hosts);
        EXPECT_EQ(count_apart(cuts, first, hosts), fewest_apart(cuts, hosts)) << trial;
        moved += first == first_ranks(cuts, {}) ? 0 : 1;
    }
    EXPECT_GT(moved, 50);
}

TEST(ReplicaOrder, ManyUnlikeReplicasStayInOrder) {
    Ranks sizes(30);
    std::iota(sizes.begin(), sizes.end(), 1);
    const ReplicaCuts cuts = pipelines_of(sizes);
    const Ranks hosts = hosts_with({200, 265});
    EXPECT_EQ(first_ranks(cuts, hosts), first_ranks(cuts, {}));
}

/// Replicas keep their numbers and what they are; only ranks change, and what ranks have with them.
TEST(ReplicaOrder, PlansDifferInRanksAlone) {
    const Plan one_host = unlike_pipelines({2, 4, 2}, 8).plan();
    const Plan two_hosts = unlike_pipelines({2, 4, 2}, 4).plan();
    EXPECT_EQ(ranks_in_order(one_host), (Ranks{0, 1, 2, 3, 4, 5, 6, 7}));
    EXPECT_EQ(ranks_in_order(two_hosts), (Ranks{0, 1, 4, 5, 6, 7, 2, 3}));
    const Ranks ranks = ranks_in_order(two_hosts);
    Plan back = two_hosts;
    back.costs.between_hosts.reset();
    back.costs.ranks_per_host = one_host.costs.ranks_per_host;
    std::int32_t rank = 0;
    for (ReplicaPlan& replica : back.replicas) {
        for (StagePlan& stage : replica.stages) {
            back.memory[static_cast<std::size_t>(rank)] =
                two_hosts.memory[static_cast<std::size_t>(stage.rank)];
            stage.rank = rank++;
        }
    }
    EXPECT_EQ(to_text(back), to_text(one_host));
    EXPECT_NE(to_text(two_hosts), to_text(one_host));
    EXPECT_EQ(to_text(plan_from_text(to_text(two_hosts))), to_text(two_hosts));
    for (std::size_t r = 0; r < ranks.size(); ++r) {
        const RankPlace place = place_of(two_hosts, ranks[r]);
        EXPECT_EQ(place, place_of(one_host, static_cast<int>(r)));
    }
}

TEST(ReplicaOrder, OfHostsThatAreGivenAndNotOfOtherRanks) {
    Case test = unlike_pipelines({3, 1}, 4);
    test.cluster.hosts = {7, 2, 2, 2};
    EXPECT_EQ(ranks_in_order(test.plan()), (Ranks{1, 2, 3, 0}));
    test.cluster.hosts = {7, 2, 2};
    EXPECT_EQ(hosts_of(test.cluster), (Ranks{0, 0, 0, 0}));
    EXPECT_EQ(ranks_in_order(test.plan()), (Ranks{0, 1, 2, 3}));
}

}  // namespace loratrain::plan_test
