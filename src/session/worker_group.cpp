#include "session/worker_group.h"

#include <algorithm>
#include <limits>

#include "base/error.h"
#include "comm/collective.h"
#include "config/job_words.h"
#include "plan/sweep/deploy_sweep.h"
#include "session/cluster.h"
#include "session/job_inputs.h"

namespace loratrain {

template <class Archive>
void fields(Archive& archive, ReplicaJob& replica) {
    archive("tensor", replica.tensor);
    archive("stages", replica.stages);
    archive("count", replica.count);
    archive("microbatch_tokens", replica.microbatch_tokens);
    archive("recompute", worded(replica.recompute, recompute_words));
    archive("recomputed_layers", replica.recomputed_layers);
    archive("recomputes_least", replica.recomputes_least);
}

template <class Archive>
void fields(Archive& archive, WorkerShape& shape) {
    archive("replica", shape.replica);
    archive("recompute", worded(shape.recompute, recompute_words));
}

namespace {

int ranks_of(const ReplicaJob& replica) {
    return replica.tensor * replica.stages;
}

ReplicaJob wanted_replica(const Job& job, int ranks) {
    const ParallelJob& parallel = job.parallel;
    ReplicaJob replica;
    replica.stages = parallel.pipeline_stages.value_or(1);
    replica.count = ranks / replica.stages;
    if (!parallel.deployment.empty()) replica = parallel.deployment.front();
    const int each = ranks_of(replica);
    if (replica.count > 0 && each * replica.count == ranks) return replica;
    const bool counted = !parallel.deployment.empty();
    throw InputError(
        cat(job.path, ": parallel.assignment"),
        cat(ranks, ranks == 1 ? " rank is" : " ranks are", " not ", std::max(1, replica.count),
            " workers of ", each),
        cat("start ", counted ? "" : "a multiple of ", counted ? each * replica.count : each,
            " ranks, or change ", counted ? "deployment" : "pipeline_stages"));
}

/// Of the sizes of microbatches that are looked at the fastest says it.
Recompute fastest_recompute(const SweepTask& task, const ReplicaJob& replica) {
    Recompute recompute = Recompute::automatic;
    double fastest = std::numeric_limits<double>::max();
    for (const SweepReplica& r : SweepShapes(task).replicas(replica.tensor, replica.stages)) {
        const double seconds =
            contiguous_assignment(r, task.rules, task.trials.counts(), replica.count).makespan();
        if (seconds < fastest) recompute = r.recompute;
        fastest = std::min(fastest, seconds);
    }
    return recompute;
}

}  // namespace

WorkerGroup::WorkerGroup(const MpiSession& world, const WorkerShape& shape)
    : world_(world),
      shape_(shape),
      own_(world.split(world.rank() / ranks_of(shape.replica))),
      leaders_(world.split(world.rank() % ranks_of(shape.replica))) {}

WorkerShape shape_of_workers(const Job& job, const Cluster& cluster) {
    WorkerShape shape;
    const bool found = job.parallel.assignment == Assignment::automatic;
    if (!found) shape.replica = wanted_replica(job, cluster.ranks);
    const JobInputs inputs = open_job_inputs(job);
    const ModelSpec model = inputs.weights->spec();
    const TrialClasses trials = expected_trials(job, model, inputs.infos);
    const SweepTask task{job, model, inputs.infos, cluster, trials};
    if (!found) {
        shape.recompute = fastest_recompute(task, shape.replica);
        return shape;
    }
    const SweepDeployment deployment = deploy_sweep(task);
    const SweepShape& best = deployment.plan.shape;
    shape.replica = {best.tensor, best.stages, best.replicas, best.microbatch_tokens};
    shape.recompute = deployment.replica.recompute;
    return shape;
}

WorkerShape shape_of_workers(const MpiSession& world, const Job& job) {
    const Cluster cluster = describe_cluster(world, job.run.backend);
    WorkerShape shape;
    agree(world, [&] {
        if (world.is_root()) shape = shape_of_workers(job, cluster);
    });
    return broadcast(world, shape);
}

Job job_of_worker(Job job, const WorkerShape& shape, int worker) {
    job.logging.trace = job.logging.trace && worker == 0;
    ParallelJob& parallel = job.parallel;
    if (parallel.assignment == Assignment::automatic) parallel.assignment = Assignment::each;
    const ReplicaJob& replica = shape.replica;
    if (replica.microbatch_tokens) parallel.microbatch_tokens = replica.microbatch_tokens;
    if (parallel.recompute == Recompute::automatic) {
        parallel.recompute = shape.recompute;
        parallel.recomputes_least = true;
    }
    parallel.deployment.clear();
    parallel.pipeline_stages.reset();
    if (replica.tensor > 1) {
        parallel.deployment = {{replica.tensor, replica.stages, 1, {}}};
    } else {
        parallel.pipeline_stages = replica.stages;
    }
    return job;
}

}  // namespace loratrain
