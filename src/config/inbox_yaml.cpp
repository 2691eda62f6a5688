#include "config/inbox_yaml.h"

#include "config/adapter_reader.h"
#include "config/dataset_reader.h"

namespace loratrain {

JobAdditions read_inbox(const std::string& text, const std::string& source, const Job& job) {
    ProblemLog log;
    std::optional<YamlNode> root = parse_yaml(text, {source, false}, log);
    if (root && root->kind == YamlNode::Kind::null) {
        log.add(root->place, "the file is empty", "list adapters, as in adapters: [{name: a}]");
        root.reset();
    }
    if (!root) log.throw_if_any();
    const std::string folder = folder_of(job.path);
    SectionReader top(&*root, root->place, "", log);
    JobAdditions additions;
    additions.datasets = read_added_datasets(top, folder, job.datasets, log);
    split_by_default(job.eval.split, additions.datasets);
    std::vector<DatasetJob> datasets = job.datasets;
    datasets.insert(datasets.end(), additions.datasets.begin(), additions.datasets.end());
    additions.adapters =
        read_adapters(top, {folder, job.run.seed, datasets, &job.defaults, job.adapters}, log)
            .adapters;
    top.finish();
    log.throw_if_any();
    return additions;
}

void add_to_job(Job& job, const JobAdditions& additions) {
    job.datasets.insert(job.datasets.end(), additions.datasets.begin(), additions.datasets.end());
    job.adapters.insert(job.adapters.end(), additions.adapters.begin(), additions.adapters.end());
}

}  // namespace loratrain
