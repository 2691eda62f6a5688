#pragma once

#include <span>

#include "plan/plan.h"
#include "plan/plan_report.h"

namespace loratrain {

/// Makes the plan of a job.

/// A plan, and what the planner reports about its choices.
struct PlannedJob {
    Plan plan;
    PlanReport report;
};

/// Makes the static part of the plan: deployment (layers over ranks), microbatch size, memory.
/// `datasets` is indexed by DatasetId.
///
/// Throws InputError listing every problem:
/// - more stages than layers or ranks;
/// - an adapter without a target in the model;
/// - a sample longer than microbatch_tokens;
/// - an empty dataset, or a dataset without any target token;
/// - too little memory for the largest adapter alone. The message says what is missing and what
///   would help: smaller microbatches, recompute: layer, more stages.
///
/// The rules:
/// - first_admitted: all adapters (admission.h: at most most_admitted). If these do not fit into
///   memory, the longest part of admission_order that fits beside microbatches of at least 1/8 of
///   the usual tokens, or else the longest part that fits. The other adapters wait.
/// - pipeline_stages: auto = all ranks. Ranks that would stay unused are a problem.
/// - parallel.deployment: replicas have the lanes and stages that it gives (check_deployment.h). If
///   it is to be found, find_deployments.h finds it before this function is called. All other rules
///   hold with the sizes of a lane.
/// - layers are split by cost: the largest time of a stage is as small as possible, for a
///   microbatch of usual size (or the given size) with the job's mix of samples
///   (partition_layers.h).
/// - microbatch_tokens: auto = max(longest sample, min(usual tokens, largest round in tokens, what
///   fits in memory)). Usual tokens are 2048 on the CPU and 8192 on CUDA; on one GPU up to 32768
///   (usual_tokens_of_one_gpu). Another size is taken if it is faster by simulation, with its own
///   recomputation and number of adapters at once (search_layout.h); this is tried for a pipeline,
///   and for a GPU whose memory requires recomputation.
/// - recompute: auto = none if that fits (fit_memory.h). If the fastest choice recomputes, layers
///   stream instead if that is faster still (plan_streaming.h).
/// - neighbouring stages share the layer between them if every adapter trains from the start, both
///   stages fit in memory with it and it is faster (partition_layers.h).
/// - max_in_flight = number of stages, or more with policy balanced or mlora (search_layout.h).
/// - pad_columns = sum of the ranks, rounded up to 16, if that is at most free_columns. Otherwise
///   the sum of the largest ranks, of as many adapters as a microbatch may have: most_admitted, or
///   one with policy mlora. At most 128 on the CPU and 512 on CUDA; measured: beyond these,
///   segments are faster. 0 if one rank is larger.
/// - microbatches whose ranks sum to at most pad_columns use the augmented matrix (design.md "One
///   augmented matrix"). Others, in an evaluation or with adapters added later, go by segment.
/// - saved_columns = width of S in both cases. No adapter added later may have a larger rank.
/// - on CUDA, linears of one input are multiplied together if that is faster (join_products.h).
///
/// `former`: the plan of the run that is resumed, or null. Results must not depend on the memory
/// that is free now, so values are kept from it if they still fit: microbatch_tokens and recompute
/// where they are auto; with as many lanes, the joined products; with as many stages, the stages
/// and max_in_flight.
///
/// `least_speed`: tokens a second of all replicas together. Of a plan that does not reach it no
/// more is of interest than that: where a replica falls behind its part, as large as its part of
/// the ranks, that replica's layout is not searched to the end (PlanReport::falls_behind).
PlannedJob plan_job(const Job& job, const ModelSpec& model, std::span<const DatasetInfo> datasets,
                    const Cluster& cluster, const Plan* former = nullptr, double least_speed = 0.0);
/// plan_job() without the report.
Plan make_plan(const Job& job, const ModelSpec& model, std::span<const DatasetInfo> datasets,
               const Cluster& cluster, const Plan* former = nullptr);

/// What the plans of all deployments of a job have in common, for code that looks for a deployment.
/// The only replica has no stages, but its LoRA columns. All adapters that may train at once are
/// admitted. Throws InputError for problems that no deployment can solve.
Plan plan_before_deployment(const Job& job, const ModelSpec& model,
                            std::span<const DatasetInfo> datasets, const Cluster& cluster);

}  // namespace loratrain
