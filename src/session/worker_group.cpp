#include "session/worker_group.h"

#include "comm/collective.h"
#include "config/job_words.h"
#include "session/cluster.h"
#include "session/job_inputs.h"

namespace loratrain {

template <class Archive>
void fields(Archive& archive, ReplicaJob& replica) {
    archive.list(replica.tensor, replica.stages, replica.count, replica.microbatch_tokens,
                 worded(replica.recompute, recompute_words), replica.recomputed_layers,
                 replica.recomputes_least);
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

}  // namespace

WorkerGroup::WorkerGroup(const MpiSession& world, const WorkerShape& shape)
    : world_(world),
      shape_(shape),
      own_(world.split(world.rank() / ranks_of(shape.replica))),
      leaders_(world.split(world.rank() % ranks_of(shape.replica))) {}

WorkerShape shape_of_workers(const MpiSession& world, const Job& job) {
    const Cluster cluster = describe_cluster(world, job.run.backend);
    WorkerShape shape;
    agree(world, [&] {
        if (!world.is_root()) return;
        const JobInputs inputs = open_job_inputs(job);
        shape = shape_of_workers(job, planned_model(job, *inputs.weights), inputs.infos, cluster);
    });
    return broadcast(world, shape);
}

}  // namespace loratrain
