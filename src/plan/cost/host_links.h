#pragma once

#include <cstdint>

#include "config/job.h"
#include "plan/costs.h"
#include "plan/plan.h"
#include "plan/replica_view.h"

namespace loratrain {

/// Costs of messages between the hosts of a cluster.

/// Number of hosts of the cluster.
std::int32_t host_count(const Cluster& cluster);

/// Costs of messages between hosts: those of the job (cluster.between_hosts), else built-in ones.
LinkCost between_hosts_of(const Job& job, const Cluster& cluster);

/// Adds between_hosts_of() to built-in costs if the cluster has several hosts.
void add_hosts(const Job& job, const Cluster& cluster, CostModel& costs);

/// Costs of lanes on `hosts` hosts, from costs of lanes on one host. A sum goes up a tree of the
/// hosts and down again: 2 ceil(log2(hosts)) messages one after another, at the rate of one link
/// between hosts. Unchanged without CostModel::between_hosts. `plan`: its model, types and device.
CostModel over_hosts(const Plan& plan, std::int32_t tensor, std::int32_t hosts, CostModel costs);

/// Costs of a stage of the replica by the numbers of its ranks; a host has `ranks_per_host` ranks.
CostModel costs_of_stage(const ReplicaView& view, const StagePlan& stage, const CostModel& costs);

}  // namespace loratrain
