#include "config/inbox_yaml.h"

#include "config/adapter_reader.h"
#include "config/dataset_reader.h"

namespace loratrain {

namespace {

std::optional<SweepSpace> read_added_space(SectionReader& top, const Job& job) {
    if (!top.has("sweep")) return std::nullopt;
    SectionReader sweep = top.section("sweep");
    std::optional<SweepSpace> space = read_sweep_space(sweep, job.run.seed, false);
    sweep.finish();
    if (job.sweep) return space;
    top.context().log.add(sweep.place(), "sweep: this run has none",
                          "give adapters, or start a run whose job has a sweep");
    return std::nullopt;
}

void check_added_trials(const std::vector<AdapterJob>& adapters,
                        const std::vector<DatasetJob>& datasets, const Place& place,
                        ProblemLog& log) {
    Job job;
    job.datasets = datasets;
    job.adapters = adapters;
    check_sweep(job, place, log);
}

}  // namespace

JobAdditions read_inbox(const std::string& text, const std::string& source, const Job& job) {
    ProblemLog log;
    std::optional<YamlNode> root = parse_yaml(text, {source, false}, log);
    if (root && root->kind == YamlNode::Kind::null) {
        log.add(root->place, "the file is empty", "list adapters, as in adapters: [{name: a}]");
        root.reset();
    }
    if (!root) log.throw_if_any();
    ReadContext context{log, folder_of(job.path)};
    SectionReader top(&*root, root->place, "", context);
    JobAdditions additions;
    context.paths = &additions.given_paths;
    additions.datasets = read_added_datasets(top, job.datasets);
    split_by_default(job.eval.split, additions.datasets);
    std::vector<DatasetJob> datasets = job.datasets;
    datasets.insert(datasets.end(), additions.datasets.begin(), additions.datasets.end());
    context.set_datasets(datasets);
    const std::optional<SweepSpace> space = read_added_space(top, job);
    additions.adapters =
        read_adapters(top, {job.run.seed, &job.defaults, job.adapters, space ? &*space : nullptr})
            .adapters;
    for (const AdapterJob& adapter : additions.adapters) {
        if (!adapter.rewards.wanted()) continue;
        log.add(root->place, cat("adapters.", adapter.name, ".rewards: cannot be added to a run"),
                "start another job with it");
    }
    check_added_trials(additions.adapters, datasets, root->place, log);
    top.finish();
    log.throw_if_any();
    return additions;
}

void add_to_job(Job& job, const JobAdditions& additions) {
    job.datasets.insert(job.datasets.end(), additions.datasets.begin(), additions.datasets.end());
    job.adapters.insert(job.adapters.end(), additions.adapters.begin(), additions.adapters.end());
}

}  // namespace loratrain
