#include "plan/cost/host_links.h"

#include <algorithm>
#include <bit>
#include <set>
#include <vector>

#include "plan/cost/built_in_costs.h"
#include "plan/cost/device.h"
#include "plan/place.h"

namespace loratrain {

std::int32_t host_count(const Cluster& cluster) {
    const std::vector<std::int32_t> hosts = hosts_of(cluster);
    return static_cast<std::int32_t>(std::set<std::int32_t>(hosts.begin(), hosts.end()).size());
}

LinkCost between_hosts_of(const Job& job, const Cluster& cluster) {
    constexpr double giga = 1e9;
    constexpr double micro = 1e-6;
    const LinkJob& given = job.cluster.between_hosts;
    LinkCost link = link_between_hosts(device_of(cluster));
    if (given.gigabytes_per_second) link.per_byte = 1.0 / (giga * *given.gigabytes_per_second);
    if (given.microseconds) link.fixed = micro * *given.microseconds;
    return link;
}

void add_hosts(const Job& job, const Cluster& cluster, CostModel& costs) {
    if (host_count(cluster) == 1) return;
    costs.between_hosts = between_hosts_of(job, cluster);
    costs.ranks_per_host = std::max(1, cluster.ranks_per_node);
}

CostModel over_hosts(const Plan& plan, std::int32_t tensor, std::int32_t hosts, CostModel costs) {
    if (!costs.between_hosts || hosts <= 1) return costs;
    const LinkCost inside = lane_link(packing_device(plan));
    const auto hops = static_cast<double>(std::bit_width(static_cast<std::uint32_t>(hosts - 1)));
    const LinkCost between{std::max(inside.fixed, 2.0 * hops * costs.between_hosts->fixed),
                           std::max(inside.per_byte, costs.between_hosts->per_byte)};
    add_to_layers(lane_sums(plan.model, plan.compute, inside, tensor), -1.0, costs);
    add_to_layers(lane_sums(plan.model, plan.compute, between, tensor), 1.0, costs);
    return costs;
}

CostModel costs_of_stage(const ReplicaView& view, const StagePlan& stage, const CostModel& costs) {
    const std::int32_t size = std::max(1, costs.ranks_per_host);
    const std::int32_t tensor = view.replica.tensor;
    const std::int32_t last = stage.rank + tensor - 1;
    return over_hosts(view.plan, tensor, last / size - stage.rank / size + 1, costs);
}

}  // namespace loratrain
