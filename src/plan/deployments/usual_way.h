#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "plan/deployments/find_deployments.h"

namespace loratrain {

/// Chooses how a new run trains if the job does not say: pipeline, replicas or workers.

/// By how much less time several replicas have to take than one pipeline: they sum gradients and
/// wait for each other, which simulation knows least well.
inline constexpr double usual_gain = 0.03;
/// By how much one replica of all ranks has to, with lanes or in other sizes, and workers, between
/// which nothing passes: both are simulated as the pipeline is.
inline constexpr double other_gain = 0.001;

/// How a new run trains whose job leaves it open.
struct UsualWay {
    enum class Kind : std::uint8_t { pipeline, replicas, workers };
    Kind kind = Kind::pipeline;
    std::vector<ReplicaJob> deployment;     ///< replicas, or the one kind of all workers
    std::string text;                       ///< what it is and why, for people; "" = not compared
    std::optional<FoundDeployments> found;  ///< where deployments were compared
    std::optional<PlannedJob> planned;      ///< of it by built-in costs, but of workers
    std::optional<Prediction> prediction;   ///< of that plan
};

/// Whether there is one to choose: never on one rank, on CPU ranks, which share processors and
/// links in ways that no built-in costs know, on GPUs without costs of their own, and with a
/// schedule.policy that is not balanced.
bool has_choice(const Job& job, const Cluster& cluster);

/// Whether one pipeline cannot use all ranks, as a stage has a layer at least, and the job does not
/// say how else.
bool has_too_many_ranks(const Job& job, const ModelSpec& model, const Cluster& cluster);

/// One pipeline of all ranks, unless a deployment that is found (find_deployments.h), or workers
/// (fastest_workers()), end the job by usual_gain or other_gain earlier, by built-in costs; then
/// the fastest of these. All are predicted by the same simulation; on more than eight ranks the
/// pipeline after the deployment, and not where its layouts fall behind that, played and predicted
/// (PlanReport::falls_behind). There are workers where a rank holds the base, the job has two
/// adapters or more and no max_adapters, and its assignment is open. Where one pipeline does not
/// fit, the deployment. Where there is no choice one pipeline, or of too many ranks replicas that
/// are still to be found.
UsualWay usual_way(const Job& job, const ModelSpec& model, std::span<const DatasetInfo> datasets,
                   const Cluster& cluster);

/// The job that trains so.
Job settled(Job job, const UsualWay& way);

}  // namespace loratrain
