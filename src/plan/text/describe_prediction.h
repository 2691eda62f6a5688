#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "plan/deployments/compare_deployments.h"
#include "plan/deployments/idle_advice.h"
#include "plan/predict/predict.h"
#include "plan/sweep/compare_sweep.h"

namespace loratrain {

/// Predictions and comparisons as texts of a dry run.

/// Speed, time of the whole job, idle shares, and what filled the blocks.
std::string describe(const Plan& plan, const Prediction& prediction);

/// A link as text: "1.18 GB/s, 24 us"; latency alone if bytes cost nothing.
std::string to_text(const LinkCost& link);

/// On several hosts: a line with the links inside a host and between two hosts that the prediction
/// used, and where these numbers are from. "" on one host.
std::string describe_links(const Job& job, const Plan& plan, const Cluster& cluster);

/// A line per policy: tokens/s, time, idle share, and the gain of `chosen` over it. A second line
/// for mlora if its published rule differs.
std::string describe(const std::vector<PolicyPrediction>& policies, SchedulePolicy chosen);

/// A line for the job as it is, on `ranks` ranks, and a line per remedy: ranks, tokens/s in all and
/// per rank, idle share.
std::string describe(const Prediction& own, std::int32_t ranks,
                     const std::vector<IdleRemedy>& remedies);

/// What a job takes on a number of ranks.
struct RankChoice {
    std::int32_t ranks = 1;
    std::vector<ReplicaJob> deployment;
    double seconds = 0.0;
    std::int64_t tokens = 0;
    std::string obstacle;  ///< why the job cannot run on them; "" = it can
};

/// A line per choice: deployment, tokens/s, hours, hours of all ranks together, and tokens/s in
/// proportion to as many ranks of the first choice. Then why some choices are impossible.
std::string describe(const std::vector<RankChoice>& choices);

/// A line for the job's own deployment and a line per other one: tokens/s, time, idle share, and
/// how much faster it is. Then what was searched to find them. "" if there is no other deployment.
std::string describe(const DeploymentComparison& comparison);

/// A line per row: deployment, GPU-seconds per round, and their share of the first row's.
std::string describe(const std::vector<Baseline>& baselines);

/// The plan of a sweep, for people: the replicas, a line per way of training the same trials (time,
/// and how many times as fast as Min-GPU), and a picture of every replica's queue.
std::string describe(const SweepComparison& comparison);

/// A line per replica with the number of trials that it trains over time; "+" = ten or more, "." =
/// none.
std::string queue_picture(const SweepDeployment& deployment);

}  // namespace loratrain
