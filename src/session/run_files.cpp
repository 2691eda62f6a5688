#include "session/run_files.h"

#include <filesystem>

#include "base/plain_file.h"
#include "config/given_paths.h"
#include "io/capped_problems.h"
#include "io/files.h"
#include "io/run_files/device_samples.h"
#include "io/run_files/results_file.h"
#include "io/run_files/status_file.h"
#include "io/run_files/trace_file.h"
#include "measure/measured_costs.h"
#include "report/run_record.h"

namespace loratrain {

namespace fs = std::filesystem;

namespace {

/// What a run directory has under a name.
struct RunFile {
    enum class Kind : std::uint8_t {
        file,
        folder,
        folders,  ///< of adapters' names, with a folder each
    };
    const char* name;
    Kind kind = Kind::file;
    bool of_run = true;  ///< else it stays where a run begins anew
};

using Kind = RunFile::Kind;

constexpr RunFile run_files[] = {
    {"ckpt", Kind::folder},
    {"adapters", Kind::folders},
    {"exports", Kind::folders},
    {"rollouts", Kind::folders},
    {"resolved.yaml"},
    {"plan.yaml"},
    {"provenance.json"},
    {status_file_name},
    {results_file_name},
    {memory_file_name},
    {trace_file_name},
    {"preview", Kind::folder},
    {"held_out.json"},
    {"tensorboard", Kind::folders},
    {"report.html"},
    {"sweep", Kind::folder},
    {device_folder_name, Kind::folder},
    {".lock", Kind::file, false},
    {".lock.held", Kind::file, false},
    {"loratrain.log", Kind::file, false},
    {"gemm_algorithms", Kind::file, false},
    {costs_file_name, Kind::file, false},
    {"inbox", Kind::folder, false},
    {"references", Kind::folder, false},
    {"dry_run", Kind::folder, false},
};

/// All below a folder. What people lay into the inbox is looked at when it is read.
void check_below(const fs::path& folder, CappedProblems& problems) {
    std::error_code error;
    for (fs::recursive_directory_iterator entry(folder, error), end; !error && entry != end;
         entry.increment(error)) {
        std::error_code none;
        const fs::file_status status = entry->symlink_status(none);
        const bool laid_there = entry.depth() == 0 && folder.filename() == "inbox";
        if (laid_there || fs::is_directory(status)) continue;
        const std::string path = entry->path().string();
        const std::string kind = not_a_plain_file(path);
        if (!kind.empty()) {
            problems.add(path, cat("is ", kind, ", must be a plain file or folder"),
                         "move it elsewhere, or choose another run.dir");
        }
    }
}

}  // namespace

std::vector<std::string> files_of_former_run() {
    std::vector<std::string> names;
    for (const RunFile& file : run_files) {
        if (file.of_run) names.emplace_back(file.name);
    }
    return names;
}

void check_run_files(const std::string& dir) {
    CappedProblems problems(dir);
    for (const RunFile& file : run_files) {
        const std::string path = cat(dir, "/", file.name);
        const bool folder = file.kind != Kind::file;
        const std::string kind = folder ? not_a_folder(path) : not_a_plain_file(path);
        if (!kind.empty()) {
            problems.add(path, cat("is ", kind, ", must be ", folder ? "a folder" : "a plain file"),
                         "a run writes only into its own directory: move what this is elsewhere, "
                         "or choose another run.dir");
        } else if (folder) {
            check_below(path, problems);
        }
    }
    problems.throw_if_any();
}

void check_run_directory(const Job& job) {
    Problems problems;
    collect(problems, [&] {
        check_place_of_directory(job.run.dir);
        check_run_files(job.run.dir);
    });
    with_keys(problems, job.given_paths).throw_if_any();
}

void remove_unfinished(const std::string& dir) {
    remove_unfinished_writes(dir);
    for (const RunFile& file : run_files) {
        const std::string path = cat(dir, "/", file.name);
        if (file.kind == Kind::file || file.name == std::string_view("inbox")) continue;
        if (file.kind == Kind::folder) {
            remove_unfinished_below(path);
            continue;
        }
        std::error_code none;
        for (const auto& entry : fs::directory_iterator(path, none)) {
            if (entry.is_directory(none)) remove_unfinished_below(entry.path().string());
        }
    }
}

}  // namespace loratrain
