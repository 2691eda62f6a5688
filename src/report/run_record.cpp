#include "report/run_record.h"

#include <filesystem>
#include <string_view>

#include "base/error.h"
#include "base/log.h"
#include "config/job_yaml.h"
#include "io/files.h"
#include "io/json_text.h"
#include "plan/text/plan_text.h"

namespace loratrain {

namespace fs = std::filesystem;

namespace {

constexpr const char* resolved_name = "/resolved.yaml";

void check_run_directory(const std::string& dir) {
    if (!fs::is_directory(dir)) {
        throw InputError(dir, "is no directory", "give the run.dir of a job");
    }
    if (!is_run_directory(dir)) {
        throw InputError(dir, "is no run directory: it has no resolved.yaml",
                         "give the run.dir of a job that has started");
    }
}

std::string text_or_empty(const std::string& path) {
    return fs::exists(path) ? read_text(path) : "";
}

std::vector<MeasuredMemory> read_memory(const std::string& path) {
    std::vector<MeasuredMemory> ranks;
    const auto json = parse_json_or_discard(text_or_empty(path));
    if (!json.is_array()) return ranks;
    for (const auto& rank : json) {
        ranks.push_back({rank.value("allocated", std::uint64_t{0}),
                         rank.value("resident_growth", std::uint64_t{0})});
    }
    return ranks;
}

/// Without it, as when another version of the program wrote it, a page still shows the rest.
void read_plan(RunRecord& run) {
    const std::string path = run.dir + "/plan.yaml";
    const std::string text = text_or_empty(path);
    if (text.empty()) return;
    try {
        run.plan = plan_from_text(text);
    } catch (const std::exception& error) {
        log::warn(cat(path, ": cannot be read, the page does without: ", error.what()));
    }
}

/// What logging.trace wrote, else the preview.
void read_trace(RunRecord& run) {
    for (const char* folder : {"/", "/preview/"}) {
        const std::string path = run.dir + folder + trace_file_name;
        const std::string text = text_or_empty(path);
        if (text.empty()) continue;
        run.trace = trace_from_json(text, path);
        run.trace_measured = std::string_view(folder) == "/";
        return;
    }
}

std::string status_of(const RunRecord& run, std::size_t adapter) {
    if (run.status && adapter < run.status->adapters.size()) {
        return run.status->adapters[adapter].status;
    }
    return "";
}

}  // namespace

bool is_run_directory(const std::string& dir) {
    return fs::exists(dir + resolved_name);
}

std::string memory_to_json(const std::vector<MeasuredMemory>& ranks) {
    auto json = OrderedJson::array();
    for (const MeasuredMemory& rank : ranks) {
        json.push_back({{"allocated", rank.allocated}, {"resident_growth", rank.resident_growth}});
    }
    return dump_json(json, 2) + "\n";
}

std::optional<RunStatus> read_status(const std::string& dir) {
    check_run_directory(dir);
    const std::string path = dir + "/" + status_file_name;
    if (!fs::exists(path)) return std::nullopt;
    return run_status_from_json(read_text(path), path);
}

RunRecord read_run(const std::string& dir) {
    RunRecord run;
    run.status = read_status(dir);
    run.dir = dir;
    run.job = read_job(dir + resolved_name, {});
    run.job_yaml = read_text(dir + resolved_name);
    read_plan(run);
    run.provenance_json = text_or_empty(dir + "/provenance.json");
    run.memory = read_memory(dir + "/" + memory_file_name);
    read_trace(run);
    for (std::size_t i = 0; i < run.job.adapters.size(); ++i) {
        run.metrics.push_back(
            read_metrics(dir + "/adapters/" + run.job.adapters[i].name + "/metrics.jsonl"));
        AdapterResult result{static_cast<AdapterId>(i), status_of(run, i), {}};
        for (const MetricsRow& row : run.metrics.back()) result.summary.add(row);
        run.results.push_back(result);
    }
    sort_results(run.results);
    return run;
}

}  // namespace loratrain
