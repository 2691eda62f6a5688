#pragma once

#include <cstdint>

#include "config/job.h"
#include "plan/costs.h"
#include "plan/plan.h"
#include "plan/replica_view.h"

namespace loratrain {

/// Hosts that the cluster's ranks are on.
std::int32_t host_count(const Cluster& cluster);

/// What messages between hosts take: as the job says (cluster.between_hosts), else as is built in
/// for the device.
LinkCost between_hosts_of(const Job& job, const Cluster& cluster);

/// Where the cluster's ranks are on several hosts, adds that to built-in costs.
void add_hosts(const Job& job, const Cluster& cluster, CostModel& costs);

/// Costs of lanes that are on so many hosts, from those of lanes on one: sums over them go up a
/// tree of the hosts and down again, 2 ceil(log2(hosts)) messages that wait for each other, at the
/// rate of one link between hosts. As they are without CostModel::between_hosts. `plan`: its model,
/// types and device.
CostModel over_hosts(const Plan& plan, std::int32_t tensor, std::int32_t hosts, CostModel costs);

/// Costs of a stage of the replica, whose ranks are numbered: of hosts of `ranks_per_host` each.
CostModel costs_of_stage(const ReplicaView& view, const StagePlan& stage, const CostModel& costs);

}  // namespace loratrain
