#pragma once

#include <span>

#include "plan/plan.h"
#include "plan/plan_report.h"

namespace loratrain {

struct PlannedJob {
    Plan plan;
    PlanReport report;
};

/// The static part of the plan: deployment (layers over ranks), microbatch size, memory.
/// Throws InputError listing every problem: more stages than layers or ranks, an adapter without a
/// target in the model, a sample longer than microbatch_tokens,
/// an empty dataset, a dataset without any target, too little memory for the largest adapter alone
/// (says what is missing and what would help: smaller microbatches, recompute: layer, more stages).
/// - first_admitted: all adapters (admission.h: at most most_admitted); where these do not fit into
///   memory at all, the longest part of admission_order that fits beside microbatches of at least
///   1/8 of the usual tokens, or else the longest that fits. The others wait.
/// - pipeline_stages auto = all ranks; ranks that would stay unused are a problem.
/// - with parallel.deployment its replicas have as many lanes and stages as it says
///   (check_deployment.h), whether given or found (find_deployments.h), which comes before this;
///   all else is as without it, with the sizes of a lane.
/// - layers are split by cost: the largest time of a stage for a microbatch of usual size (or the
///   given one) with the job's mix of samples is as small as possible (partition_layers.h).
/// - microbatch_tokens auto = max(longest sample, min(2048 on the CPU or 8192 on CUDA (on one GPU
///   up to 32768, usual_tokens_of_one_gpu), largest round in tokens, what fits in memory));
///   recompute auto = none where that fits (fit_memory.h has both rules). A pipeline, and a GPU
///   whose memory asks for recomputation, takes another size, with the recomputation and the number
///   of adapters at once that go with it, where that is faster by simulation (search_layout.h).
///   Where the fastest recomputes, layers stream instead if that is faster still
///   (plan_streaming.h).
/// - neighbouring stages share the layer between them where every adapter trains from the start,
///   both fit in memory with it and it is faster (share_layers.h).
/// - max_in_flight = number of stages, or with policy balanced or mlora more (search_layout.h).
/// - pad_columns = sum of the ranks (rounded up to 16) if that is at most free_columns, else of as
///   many of the largest as a microbatch may have adapters: most_admitted, one with policy mlora.
///   At most 128 on the CPU and 512 on CUDA (measured: beyond it segments are faster): microbatches
///   with at most that sum of ranks use the augmented matrix (design.md "One augmented
///   matrix"), the others (in an evaluation, or with adapters added later) go by segment. 0 where
///   one rank is larger. saved_columns = width of S, for either; no adapter added later may have a
///   larger rank.
/// - on CUDA linears of one input are multiplied together where that is faster (join_products.h).
/// `datasets` is indexed by DatasetId. `former`: of the run that is continued, or null; what is
/// auto in microbatch_tokens and recompute, with as many lanes what is multiplied together, and
/// with as many stages these and max_in_flight, stay as they were then, if that still fits, so that
/// results do not depend on the memory that is free now.
PlannedJob plan_job(const Job& job, const ModelSpec& model, std::span<const DatasetInfo> datasets,
                    const Cluster& cluster, const Plan* former = nullptr);
/// The plan alone.
Plan make_plan(const Job& job, const ModelSpec& model, std::span<const DatasetInfo> datasets,
               const Cluster& cluster, const Plan* former = nullptr);

/// What plans of all deployments of a job have in common, for those that look for one: its only
/// replica has no stages, but its LoRA columns; all adapters that may train at once are admitted.
/// Throws InputError for what no deployment mends.
Plan plan_before_deployment(const Job& job, const ModelSpec& model,
                            std::span<const DatasetInfo> datasets, const Cluster& cluster);

}  // namespace loratrain
