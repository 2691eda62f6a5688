#include "train/orders/grow_run.h"

#include <iterator>
#include <utility>

#include "base/error.h"
#include "base/wire.h"
#include "config/inbox_yaml.h"
#include "config/job_yaml.h"
#include "data/dataset_files.h"
#include "io/adapters/adapter_file.h"
#include "io/files.h"
#include "plan/deploy/extend_plan.h"
#include "plan/text/plan_fields.h"
#include "plan/text/plan_text.h"

namespace loratrain {

namespace {

/// The added part of DatasetFiles: opened with a job of the added datasets alone.
DatasetFiles open_added(const GrowingRun& run, const JobAdditions& additions,
                        const std::string& source, bool is_root, Problems& problems) {
    Job job;
    job.path = source;
    job.run = run.job.run;
    job.datasets = additions.datasets;
    DatasetFiles files;
    open_datasets(job, run.plan.model.vocab_size, files, problems);
    if (is_root) check_growing_folders(job, problems);
    return files;
}

void take_plan(const Plan& grown, Plan& plan) {
    plan.adapters = grown.adapters;
    plan.longest_sample = grown.longest_sample;
    plan.memory = grown.memory;
}

void take_files(DatasetFiles added, DatasetFiles& files) {
    std::move(added.train.begin(), added.train.end(), std::back_inserter(files.train));
    std::move(added.eval.begin(), added.eval.end(), std::back_inserter(files.eval));
}

}  // namespace

RunGrowth::RunGrowth(const GrowingRun& run, bool is_root)
    : run_(run), is_root_(is_root), job_(run.job) {
    if (!is_root) return;
    plan_ = run.plan;
    datasets_ = run.datasets;
}

void RunGrowth::check(const InboxFile& file) {
    Part part;
    part.additions = read_inbox(file.text, file.path, job_);
    Problems problems;
    if (is_root_ || run_.with_tokens) {
        part.files = open_added(run_, part.additions, file.path, is_root_, problems);
    }
    check_starts(part.additions, problems);
    with_keys(problems, part.additions.given_paths).throw_if_any();
    Job job = job_;
    add_to_job(job, part.additions);
    if (is_root_) {
        const std::vector<DatasetJob>& added = part.additions.datasets;
        for (std::size_t i = 0; i < added.size(); ++i) {
            const auto in_job = static_cast<DatasetId>(datasets_.size() + i);
            part.infos.push_back(dataset_info(part.files, static_cast<DatasetId>(i), added[i],
                                              batch_on(part.additions.adapters, in_job)));
        }
        const std::size_t known = datasets_.size();
        datasets_.insert(datasets_.end(), part.infos.begin(), part.infos.end());
        try {
            extend_plan(plan_, job, datasets_, file.path);
        } catch (...) {
            datasets_.resize(known);
            throw;
        }
        part.plan = to_wire(plan_);
    }
    job_ = std::move(job);
    parts_.push_back(std::move(part));
}

void RunGrowth::check_starts(const JobAdditions& additions, Problems& problems) const {
    for (const AdapterJob& adapter : additions.adapters) {
        for (const std::string& directory : adapter.directories()) {
            collect(problems,
                    [&] { AdapterFile(directory, adapter, run_.plan.model).check_values(); });
        }
    }
    if (problems.empty()) warn_of_dead_rules(additions.adapters, run_.plan.model);
}

void RunGrowth::take(const std::string& plan) {
    Part part = std::move(parts_.front());
    parts_.pop_front();
    take_plan(from_wire<Plan>(plan, "a plan"), run_.plan);
    add_to_job(run_.job, part.additions);
    if (is_root_) record(part);
    take_files(std::move(part.files), run_.files);
    if (is_root_ && run_.keeps_records) write_held_out(run_.job, run_.files);
}

void RunGrowth::record(Part& part) {
    for (std::size_t i = 0; i < part.infos.size(); ++i) {
        run_.datasets.push_back(std::move(part.infos[i]));
        const auto& eval = part.files.eval[i];
        run_.identity.data_checksums.push_back(part.files.train[i].checksum());
        run_.identity.eval_checksums.push_back(eval ? eval->checksum() : "");
    }
    run_.identity.job_yaml = to_yaml(run_.job);
    if (!run_.keeps_records) return;
    write_text_atomic(run_.job.run.dir + "/resolved.yaml", run_.identity.job_yaml);
    write_text_atomic(run_.job.run.dir + "/plan.yaml", to_text(run_.plan));
}

}  // namespace loratrain
