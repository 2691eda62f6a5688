#include "report/run_record.h"

#include <filesystem>
#include <functional>
#include <string_view>

#include "base/error.h"
#include "base/log.h"
#include "config/job_yaml.h"
#include "io/files.h"
#include "io/json_text.h"
#include "io/run_files/metrics_file.h"
#include "plan/text/plan_text.h"

namespace loratrain {

namespace fs = std::filesystem;

namespace {

constexpr const char* resolved_name = "/resolved.yaml";

void check_run_directory(const std::string& dir) {
    if (!fs::is_directory(dir)) {
        throw InputError(dir, "is not a directory", "give the run.dir of a job");
    }
    if (!is_run_directory(dir)) {
        throw InputError(dir, "is not a run directory: it has no resolved.yaml",
                         "give the run.dir of a job that has started, or a directory of such");
    }
}

std::string text_or_empty(const std::string& path) {
    return fs::exists(path) ? read_text(path) : "";
}

/// `read` takes the text of a record of the run; without it, as when another version of the program
/// wrote it, a page still shows the rest. False where there is none that can be read.
bool read_record(const std::string& path, const std::function<void(const std::string&)>& read) {
    try {
        const std::string text = text_or_empty(path);
        if (text.empty()) return false;
        read(text);
        return true;
    } catch (const std::exception& error) {
        const std::string what = error.what();
        const bool named = what.starts_with(path);
        log::warn(cat("the page leaves out ", named ? what : path + ": cannot be read: " + what));
        return false;
    }
}

void read_memory(RunRecord& run) {
    read_record(run.dir + "/" + memory_file_name, [&](const std::string& text) {
        std::vector<MeasuredMemory> ranks;
        for (const OrderedJson& rank : parse_ordered_json(text)) {
            ranks.push_back({rank.at("allocated").get<std::uint64_t>(),
                             rank.at("resident_growth").get<std::uint64_t>()});
        }
        run.memory = std::move(ranks);
    });
}

void read_samples(RunRecord& run) {
    for (std::size_t rank = 0; rank < most_sampled_ranks; ++rank) {
        const std::string path = cat(run.dir, "/", device_folder_name, "/",
                                     device_file_name(static_cast<std::int32_t>(rank)));
        std::vector<DeviceSample> samples;
        read_record(path, [&](const std::string& text) { samples = device_samples(text); });
        run.samples.push_back(std::move(samples));
    }
    while (!run.samples.empty() && run.samples.back().empty()) run.samples.pop_back();
}

/// What logging.trace wrote, else the preview.
void read_trace(RunRecord& run) {
    for (const char* folder : {"/", "/preview/"}) {
        const std::string path = run.dir + folder + trace_file_name;
        const bool found = read_record(
            path, [&](const std::string& text) { run.trace = trace_from_json(text, path); });
        if (!found) continue;
        run.trace_measured = std::string_view(folder) == "/";
        return;
    }
}

std::string status_path(const std::string& dir) {
    return dir + "/" + status_file_name;
}

std::string status_of(const RunRecord& run, std::size_t adapter) {
    if (run.status && adapter < run.status->adapters.size()) {
        return shown_status(run.status->adapters[adapter].status, run.pulse);
    }
    return "";
}

/// "" = the adapter writes none, or has not begun.
std::string newest_rollouts(const Job& job, const AdapterJob& adapter) {
    if (!adapter.rewards.wanted()) return "";
    std::string newest;
    std::error_code none;
    for (const auto& entry : fs::directory_iterator(job.dataset(adapter.dataset).path, none)) {
        const std::string path = entry.path().string();
        if (entry.path().extension() == ".jsonl") newest = std::max(newest, path);
    }
    return newest;
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
    const std::string path = status_path(dir);
    if (!fs::exists(path)) return std::nullopt;
    return run_status_from_json(read_text(path), path);
}

RunRecord read_run(const std::string& dir) {
    RunRecord run;
    check_run_directory(dir);
    run.dir = dir;
    run.job = read_job(dir + resolved_name, {});
    run.job_yaml = read_text(dir + resolved_name);
    read_record(status_path(dir), [&](const std::string& text) {
        run.status = run_status_from_json(text, status_path(dir));
        run.pulse = pulse_now(*run.status);
    });
    read_record(dir + "/plan.yaml", [&](const std::string& text) {
        Plan plan = plan_from_text(text);
        if (plan.adapters.size() > run.job.adapters.size()) {
            throw Error(cat("it is a plan of ", plan.adapters.size(), " adapters"));
        }
        run.plan = std::move(plan);
    });
    read_record(dir + "/provenance.json", [&](const std::string& text) {
        parse_ordered_json(text);
        run.provenance_json = text;
    });
    read_memory(run);
    read_samples(run);
    read_trace(run);
    for (std::size_t i = 0; i < run.job.adapters.size(); ++i) {
        const std::string folder = dir + "/adapters/" + run.job.adapters[i].name + "/";
        run.metrics.emplace_back();
        read_record(folder + "metrics.jsonl",
                    [&](const std::string& text) { run.metrics.back() = metrics_rows(text); });
        run.generations.emplace_back();
        read_record(folder + generations_file_name,
                    [&](const std::string& text) { run.generations.back() = text; });
        run.rollouts.emplace_back();
        read_record(newest_rollouts(run.job, run.job.adapters[i]),
                    [&](const std::string& text) { run.rollouts.back() = text; });
        AdapterResult result{static_cast<AdapterId>(i), status_of(run, i), {}};
        for (const MetricsRow& row : run.metrics.back()) result.summary.add(row);
        run.results.push_back(result);
    }
    read_record(dir + "/" + results_file_name, [&](const std::string& text) {
        std::map<std::string, TrialResult> trials = trial_results_from_csv(text);
        for (AdapterResult& result : run.results) {
            const auto found = trials.find(run.job.adapter(result.adapter).name);
            if (found != trials.end()) result.trial = found->second;
        }
    });
    sort_results(run.job, run.results);
    return run;
}

}  // namespace loratrain
