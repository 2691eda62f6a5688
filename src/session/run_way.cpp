#include "session/run_way.h"

#include <string>
#include <utility>
#include <vector>

#include "base/error.h"
#include "comm/collective.h"
#include "config/inbox_yaml.h"
#include "config/job_yaml.h"
#include "plan/deployments/usual_way.h"
#include "session/cluster.h"
#include "train/checkpoint/checkpoint_folder.h"
#include "train/checkpoint/worker_checkpoints.h"
#include "train/orders/inbox.h"

namespace loratrain {

namespace {

bool goes_on(const CommandLine& command_line, const Job& job) {
    if (command_line.restart == Restart::never) return false;
    return command_line.restart == Restart::from_path || has_worker_checkpoints(job) ||
           !latest_round(checkpoint_folder(job)).empty();
}

/// Of the run that is continued; one pipeline where it cannot be read.
ParallelJob former_parallel(const Job& job) {
    try {
        return read_job(job.run.dir + "/resolved.yaml", {}).parallel;
    } catch (const std::exception&) {
        return {};
    }
}

UsualWay former_way(const Job& job, int ranks) {
    const ParallelJob former = former_parallel(job);
    UsualWay way;
    if (former.by_workers() || has_worker_checkpoints(job)) {
        way.kind = UsualWay::Kind::workers;
        const bool alike = former.deployment.size() == 1;
        const ReplicaJob cut = alike ? former.deployment.front() : ReplicaJob{};
        if (alike && cut.tensor * cut.stages * cut.count == ranks) way.deployment = {cut};
    } else if (former.find_deployment || !former.deployment.empty()) {
        way.kind = UsualWay::Kind::replicas;
    }
    return way;
}

/// Root only.
UsualWay way_of_run(const CommandLine& command_line, const Job& job, const Cluster& cluster,
                    std::optional<JobInputs>& inputs) {
    inputs = open_job_inputs(job);
    const ModelSpec model = planned_model(job, *inputs->weights);
    if (!goes_on(command_line, job)) return usual_way(job, model, inputs->infos, cluster);
    UsualWay way = former_way(job, cluster.ranks);
    if (way.kind == UsualWay::Kind::pipeline && has_too_many_ranks(job, model, cluster)) {
        way.kind = UsualWay::Kind::replicas;
    }
    return way;
}

}  // namespace

BegunSession settle_run_way(const CommandLine& command_line, const MpiSession& mpi, Job& job) {
    BegunSession begun;
    if (!job.parallel.deployment_open) return begun;
    const Cluster cluster = describe_cluster(mpi, job.run.backend);
    UsualWay way;
    agree(mpi, [&] {
        if (mpi.is_root()) way = way_of_run(command_line, job, cluster, begun.inputs);
    });
    way.kind = static_cast<UsualWay::Kind>(broadcast(mpi, static_cast<int>(way.kind)));
    job = settled(std::move(job), way);
    begun.planned = std::move(way.planned);
    return begun;
}

namespace {

/// What the root has accepted, on every rank.
std::vector<InboxFile> accepted_files(const MpiSession& mpi, const Job& job) {
    std::vector<InboxFile> files;
    agree(mpi, [&] {
        if (mpi.is_root()) files = accepted_additions(job.run.dir);
    });
    return broadcast(mpi, files);
}

void refuse_shape_alone(const Job& job) {
    if (job.model.config.empty()) return;
    throw InputError(cat(job.path, ": model.config"),
                     cat("is ", job.model.config, ", which has no weights to train"),
                     "add --dry-run, or give model.weights, made by loratrain import-hf");
}

}  // namespace

Job read_job_of_run(const CommandLine& command_line, const MpiSession& mpi) {
    Job job;
    agree(mpi, [&] {
        job = read_job(command_line.job_path, command_line.overrides);
        if (!command_line.dry_run) refuse_shape_alone(job);
    });
    if (command_line.restart == Restart::never) return job;
    for (const InboxFile& file : accepted_files(mpi, job)) {
        agree(mpi, [&] { add_to_job(job, read_inbox(file.text, file.path, job)); });
    }
    return job;
}

}  // namespace loratrain
