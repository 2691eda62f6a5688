#include "train/orders/grow_run.h"

#include <iterator>

#include "base/error.h"
#include "comm/collective.h"
#include "config/inbox_yaml.h"
#include "config/job_yaml.h"
#include "data/dataset_files.h"
#include "io/adapters/adapter_file.h"
#include "io/files.h"
#include "plan/deploy/extend_plan.h"
#include "plan/text/plan_text.h"
#include "train/records/held_out.h"

namespace loratrain {

namespace {

/// The added part of DatasetFiles: opened with a job of the added datasets alone.
DatasetFiles open_added(const GrowingRun& run, const JobAdditions& additions,
                        const std::string& source, Problems& problems) {
    Job job;
    job.path = source;
    job.run = run.job.run;
    job.datasets = additions.datasets;
    DatasetFiles files;
    open_datasets(job, run.plan.model.vocab_size, files, problems);
    return files;
}

void check_starts(const JobAdditions& additions, const ModelSpec& model, Problems& problems) {
    for (const AdapterJob& adapter : additions.adapters) {
        for (const std::string& directory : adapter.directories()) {
            try {
                AdapterFile(directory, adapter, model).check_values();
            } catch (const InputError& error) {
                problems.add(error);
            }
        }
    }
}

std::string extended_plan(const GrowingRun& run, const JobAdditions& additions,
                          const DatasetFiles& added, const std::string& source) {
    Job job = run.job;
    add_to_job(job, additions);
    std::vector<DatasetInfo> datasets = run.datasets;
    for (std::size_t i = 0; i < added.train.size(); ++i) {
        datasets.push_back(dataset_info(added, static_cast<DatasetId>(i), additions.datasets[i]));
    }
    Plan plan = run.plan;
    extend_plan(plan, job, datasets, source);
    return to_text(plan);
}

void take_plan(const Plan& grown, Plan& plan) {
    plan.adapters = grown.adapters;
    plan.samples = grown.samples;
    plan.memory = grown.memory;
}

void take_files(DatasetFiles added, DatasetFiles& files) {
    std::move(added.train.begin(), added.train.end(), std::back_inserter(files.train));
    std::move(added.eval.begin(), added.eval.end(), std::back_inserter(files.eval));
}

void record(const GrowingRun& run, const DatasetFiles& added) {
    for (std::size_t i = 0; i < added.train.size(); ++i) {
        const DatasetJob& dataset = run.job.datasets[run.datasets.size()];
        run.datasets.push_back(dataset_info(added, static_cast<DatasetId>(i), dataset));
        run.identity.data_checksums.push_back(added.train[i].checksum());
        run.identity.eval_checksums.push_back(added.eval[i] ? added.eval[i]->checksum() : "");
    }
    run.identity.job_yaml = to_yaml(run.job);
    if (!run.keeps_records) return;
    write_text_atomic(run.job.run.dir + "/resolved.yaml", run.identity.job_yaml);
    write_text_atomic(run.job.run.dir + "/plan.yaml", to_text(run.plan));
}

}  // namespace

void grow_run(const MpiSession& mpi, const GrowingRun& run, const std::string& text,
              const std::string& source) {
    JobAdditions additions;
    DatasetFiles added;
    std::string plan_text;
    agree(mpi, [&] {
        additions = read_inbox(text, source, run.job);
        Problems problems;
        if (mpi.is_root() || run.with_tokens) {
            added = open_added(run, additions, source, problems);
        }
        check_starts(additions, run.plan.model, problems);
        problems.throw_if_any();
        if (mpi.is_root()) plan_text = extended_plan(run, additions, added, source);
    });
    agree(mpi, [&] {
        if (mpi.is_root()) run.accept();
    });
    take_plan(plan_from_text(broadcast_text(mpi, plan_text)), run.plan);
    add_to_job(run.job, additions);
    if (mpi.is_root()) record(run, added);
    take_files(std::move(added), run.files);
    if (mpi.is_root() && run.keeps_records) write_held_out(run.job, run.files);
}

}  // namespace loratrain
