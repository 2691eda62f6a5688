#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "plan/deployments/compare_deployments.h"
#include "plan/deployments/idle_advice.h"
#include "plan/predict/predict.h"

namespace loratrain {

/// Speed, time of the whole job, idle shares and what blocks were filled by.
std::string describe(const Plan& plan, const Prediction& prediction);

/// "1.18 GB/s, 24 us"; latency alone where bytes cost nothing.
std::string to_text(const LinkCost& link);

/// On several hosts, a line of what messages were predicted with inside a host and between two, and
/// where that is from; "" on one host.
std::string describe_links(const Job& job, const Plan& plan, const Cluster& cluster);

/// A line per policy, and for mlora one more with its published rule where that differs: tokens/s,
/// time, idle share, and the gain over it of `chosen`.
std::string describe(const std::vector<PolicyPrediction>& policies, SchedulePolicy chosen);

/// A line for the job as it is, on so many ranks, and one per remedy: ranks, tokens/s of all and of
/// each rank, idle share.
std::string describe(const Prediction& own, std::int32_t ranks,
                     const std::vector<IdleRemedy>& remedies);

/// What a job takes on so many ranks.
struct RankChoice {
    std::int32_t ranks = 1;
    std::vector<ReplicaJob> deployment;
    double seconds = 0.0;
    std::int64_t tokens = 0;
    std::string obstacle;  ///< why it cannot be done there; "" = it can
};

/// A line for each: deployment, tokens/s, hours, hours of all ranks together, and their tokens/s
/// against those of as many ranks of the first; then why some cannot be.
std::string describe(const std::vector<RankChoice>& choices);

/// A line for the job's own deployment and one per other: tokens/s, time, idle share, and how much
/// faster it is; and what was looked at to find them. "" where there is no other.
std::string describe(const DeploymentComparison& comparison);

/// A line per row: deployment, GPU-seconds of a round, and their share of the first row's.
std::string describe(const std::vector<Baseline>& baselines);

}  // namespace loratrain
