#include "config/job_yaml.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <limits>
#include <utility>

#include "config/adapter_reader.h"
#include "config/dataset_reader.h"
#include "config/job_overrides.h"
#include "config/job_sections.h"
#include "config/key_reader.h"
#include "config/section_reader.h"
#include "config/sweep_space.h"
#include "config/yaml_tree.h"

namespace loratrain {

namespace fs = std::filesystem;

namespace {

/// Throws InputError for what must not be opened: pipes may never end, devices neither.
void check_is_job_file(const std::string& path) {
    std::error_code error;
    const fs::file_status status = fs::status(path, error);
    const char* hint = "give the path of a YAML file";
    if (fs::is_directory(status)) throw InputError(path, "is a folder, not a job file", hint);
    if (!fs::exists(status)) return;
    if (!fs::is_regular_file(status)) throw InputError(path, "is not a regular file", hint);
    const std::uintmax_t bytes = fs::file_size(path, error);
    if (!error && bytes > max_yaml_bytes) {
        throw InputError(path, human_bytes(bytes) + " is too large for a job file", hint);
    }
}

std::string read_text(const std::string& path) {
    check_is_job_file(path);
    std::ifstream file(path, std::ios::binary);
    if (!file) {
        throw InputError(path, cat("cannot open the job file: ", std::strerror(errno)),
                         "check the path and its permissions");
    }
    return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

YamlNode read_tree(const std::string& path, ProblemLog& log) {
    std::optional<YamlNode> root = parse_yaml(read_text(path), {path, false}, log);
    if (root && root->kind == YamlNode::Kind::null) {
        log.add(root->place, "the job file is empty",
                "it needs at least model, run, datasets and adapters");
        root.reset();
    }
    if (!root) log.throw_if_any();
    return std::move(*root);
}

/// Whether any adapter of the list is a trial already, as in resolved.yaml.
bool lists_trials(const YamlNode& root) {
    const YamlNode* list = root.find("adapters");
    return list != nullptr &&
           std::any_of(list->children.begin(), list->children.end(), [](const YamlNode& adapter) {
               const YamlNode* trial = adapter.find("trial");
               return trial != nullptr && trial->text == "true";
           });
}

}  // namespace

int read_peer_timeout(const std::string& path, const std::vector<Override>& overrides) {
    RunJob run;
    try {
        ProblemLog log;
        YamlNode root = read_tree(path, log);
        apply_overrides(root, overrides, log);
        const ReadContext context{log};
        SectionReader top(&root, root.place, "", context);
        top.section("run").read("peer_timeout", run.peer_timeout, at_least(0));
    } catch (const std::exception&) {
        return RunJob{}.peer_timeout;  // read_job() says what is wrong
    }
    return run.peer_timeout;
}

Job read_job(const std::string& path, const std::vector<Override>& overrides) {
    ProblemLog log;
    YamlNode root = read_tree(path, log);
    apply_overrides(root, overrides, log);

    Job job;
    job.path = path;
    ReadContext context{log, folder_of(path)};
    SectionReader top(&root, root.place, "", context);
    read_first_sections(top, job);
    job.datasets = read_datasets(top);
    context.set_datasets(job.datasets);
    std::optional<SweepSpace> space;
    Place sweep_place = root.place;
    if (top.has("sweep")) {
        SectionReader sweep = top.section("sweep");
        sweep_place = sweep.place();
        const bool trials_elsewhere = lists_trials(root) || sweep.has("wait_minutes");
        space = read_sweep_space(sweep, job.run.seed, trials_elsewhere);
        KeyReader reader(sweep);
        keys(reader, job.sweep.emplace());
        sweep.finish();
    }
    AdapterList list = read_adapters(top, {job.run.seed, nullptr, {}, space ? &*space : nullptr});
    job.defaults = std::move(list.defaults);
    job.adapters = std::move(list.adapters);
    read_last_sections(top, job);
    if (job.sweep) check_sweep(job, sweep_place, log);
    top.finish();
    log.throw_if_any();
    return job;
}

}  // namespace loratrain
