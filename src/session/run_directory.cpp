#include "session/run_directory.h"

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <sstream>

#include "backend/make_backend.h"
#include "base/error.h"
#include "base/log.h"
#include "base/system.h"
#include "base/tensor.h"
#include "base/version.h"
#include "comm/communicator.h"
#include "comm/mpi_session.h"
#include "config/job_yaml.h"
#include "data/rollout_folder.h"
#include "io/hdf5_version.h"
#include "io/json_text.h"
#include "io/run_files/run_account.h"
#include "plan/text/plan_text.h"
#include "report/run_record.h"
#include "session/run_files.h"
#include "train/checkpoint/worker_checkpoints.h"
#include "train/orders/inbox.h"

namespace loratrain {

namespace fs = std::filesystem;
namespace {

std::string moment_text() {
    return local_time(unix_time(), "%Y-%m-%dT%H:%M:%S%z");
}

void check_same_job(const std::string& dir, const RunIdentity& identity) {
    const std::string resolved = dir + "/resolved.yaml";
    if (!fs::exists(resolved)) return;
    const JobDifference difference =
        compare_jobs(read_text(resolved), identity.job_yaml, resolved, identity.backends);
    Problems problems;
    for (const std::string& line : difference.harmful) {
        problems.add(dir, "holds the run of another job: " + line,
                     "choose another run.dir, or start over here with --restart never");
    }
    problems.throw_if_any();
}

/// What does not depend on the job: versions and options.
OrderedJson program_record() {
    OrderedJson record;
    record["version"] = version_text();
    record["git"] = git_hash();
    record["build"] = build_text();
    for (const Library& library : all_libraries()) {
        record["libraries"][library.name] = library.version;
    }
    return record;
}

/// What is known of the starts before; a record that cannot be read is no reason not to train.
OrderedJson former_provenance(const std::string& path) {
    OrderedJson json = OrderedJson::object();
    if (!fs::exists(path)) return json;
    const auto read = [&] {
        const OrderedJson former = parse_ordered_json(read_text(path));
        const OrderedJson& starts = former.at("starts");
        const bool known = starts.is_array() &&
                           std::all_of(starts.begin(), starts.end(),
                                       [](const OrderedJson& start) { return start.is_object(); });
        if (!known) throw JsonRefusal("'starts' is not a list of starts");
        json["starts"] = starts;
    };
    warn_at_failure(read, path + " cannot be read and is begun anew: ");
    return json;
}

/// A start without an end was killed: nobody was left to write it.
void note_a_death(OrderedJson& starts) {
    if (starts.empty() || starts.back().contains("ended")) return;
    starts.back()["reason"] = "killed or failed, see loratrain.log";
}

std::vector<std::string> lines_of(const std::string& text) {
    std::vector<std::string> lines;
    std::istringstream stream(text);
    for (std::string line; std::getline(stream >> std::ws, line);) lines.push_back(line);
    return lines;
}

void refuse_path(const std::string& path) {
    throw InputError("--restart", path + " is one checkpoint, but each worker has its own",
                     "leave it out: workers continue each adapter from its newest checkpoint");
}

void check_is_of_no_workers(const Job& job) {
    if (!has_worker_checkpoints(job)) return;
    throw InputError(job.run.dir, "holds checkpoints of workers, which only workers can continue",
                     "write parallel.assignment: each again, or start over with --restart never");
}

/// Of the newest start, and the sum; returns those of all starts.
std::vector<RunAccount> set_account(OrderedJson& provenance, const RunAccount& account) {
    provenance["starts"].back()["account"] = to_json(account);
    std::vector<RunAccount> starts = accounts_in(provenance);
    provenance["account"] = to_json(sum_of(starts));
    return starts;
}

/// Says when; starts within one second differ by a number.
fs::path folder_aside(const std::string& dir) {
    const std::string name = cat(dir, "/before-", local_time(unix_time(), "%Y%m%d-%H%M%S"));
    fs::path target = name;
    for (int i = 2; fs::exists(target); ++i) target = cat(name, "-", i);
    return target;
}

}  // namespace

RunDirectory::RunDirectory(const Job& job, const Plan& plan, const CommandLine& command_line,
                           const RunIdentity& identity)
    : dir_(job.run.dir) {
    // Before anything is created, so that a wrong path leaves nothing behind.
    const bool by_workers = job.parallel.by_workers();
    if (command_line.restart == Restart::from_path) {
        if (by_workers) refuse_path(command_line.restart_path);
        found_ = find_checkpoint(job, plan, identity, command_line.restart_path);
    }
    check_run_directory(job);
    make_directory(dir_);
    lock_.emplace(dir_ + "/.lock", "run directory " + dir_);
    if (command_line.restart == Restart::never) {
        check_rollouts_elsewhere(job, true);
        move_former_run_aside();
    } else {
        check_same_job(dir_, identity);
        if (!by_workers) check_is_of_no_workers(job);
        if (!by_workers && !found_) found_ = find_checkpoint(job, plan, identity, "");
        check_rollouts_elsewhere(job, false);
    }
    make_rollout_folders(job);
    log::open_file(dir_ + "/loratrain.log");
    report_what_happened_before();
    remove_unfinished(dir_);
}

std::string RunDirectory::checkpoint() const {
    return found_ ? found_->path : "";
}

bool RunDirectory::set_back() const {
    return found_ && found_->set_back;
}

void RunDirectory::report_what_happened_before() const {
    if (!lock_->substitute().empty()) log::info(lock_->substitute());
    if (!lock_->left_behind().empty()) {
        log::info(cat("the run before this one (", lock_->left_behind(),
                      ") died without releasing ", dir_, "; this one takes it over"));
    }
    if (!found_) return;
    if (!found_->note.empty()) log::warn(found_->note);
    for (const std::string& text : found_->damaged) {
        log::warn(cat("checkpoint cannot be used: ", text, "; trying the one before it"));
    }
}

void RunDirectory::move_former_run_aside() const {
    const fs::path aside = folder_aside(dir_);
    for (const std::string& name : files_of_former_run()) {
        const fs::path path = fs::path(dir_) / name;
        if (!fs::exists(path)) continue;
        make_directory(aside);
        fs::rename(path, aside / name);
    }
    set_orders_aside(dir_, aside);
    if (fs::exists(aside)) log::info("moved the former run's files to " + aside.string());
}

/// Rollouts that lie elsewhere are of this run if its directory has a folder for them too.
void RunDirectory::check_rollouts_elsewhere(const Job& job, bool begins_anew) const {
    for (const AdapterJob& adapter : job.adapters) {
        const DatasetJob& rollouts = job.dataset(adapter.dataset);
        if (!adapter.rewards.wanted() || rollouts.path.starts_with(dir_ + "/")) continue;
        const bool is_own = !begins_anew && fs::exists(rollout_folder(adapter));
        if (is_own || !has_rollouts(rollouts.path)) continue;
        throw InputError(
            rollouts.path,
            cat("holds rollouts of another run, and adapter ", adapter.name,
                " is to write its own there"),
            cat("move them away, or give datasets.", rollouts.name, " another folder"));
    }
}

std::string RunDirectory::rollout_folder(const AdapterJob& adapter) const {
    return cat(dir_, "/rollouts/", adapter.name, "/");
}

void RunDirectory::make_rollout_folders(const Job& job) const {
    for (const AdapterJob& adapter : job.adapters) {
        if (!adapter.rewards.wanted()) continue;
        make_directory(job.dataset(adapter.dataset).path);
        make_directory(rollout_folder(adapter));
    }
}

void RunDirectory::write_records(const Job& job, const Plan& plan, const RunIdentity& identity,
                                 const MpiSession& mpi, const std::string& command,
                                 const std::string& backend, const std::string& devices) const {
    write_text_atomic(dir_ + "/resolved.yaml", identity.job_yaml);
    write_text_atomic(dir_ + "/plan.yaml", to_text(plan));
    const std::string path = dir_ + "/provenance.json";
    OrderedJson json = former_provenance(path);
    note_a_death(json["starts"]);
    OrderedJson start = program_record();
    start["started"] = moment_text();
    start["continues"] = checkpoint();
    start["command"] = command;
    start["directory"] = fs::current_path().string();
    start["backend"] = backend;
    start["hosts"] = mpi.hosts();
    start["devices"] = lines_of(devices);
    if (const char* slurm_job = std::getenv("SLURM_JOB_ID")) start["slurm_job"] = slurm_job;
    json["starts"].push_back(start);
    json["job"] = identity.job_yaml;
    json["weights"] = job.model.has_random_weights() ? job.model.synthetic : job.model.weights;
    if (!job.model.base_quantization.empty()) {
        json["weights_quantization"] = job.model.base_quantization;
    }
    json["weights_checksum"] = identity.weights_checksum;
    for (std::size_t i = 0; i < job.datasets.size(); ++i) {
        const std::string& name = job.datasets[i].name;
        json["data_checksums"][name] = identity.data_checksums[i];
        const std::string& eval = identity.eval_checksums[i];
        if (!eval.empty()) json["eval_checksums"][name] = eval;
    }
    json["run_seed"] = job.run.seed;
    for (const AdapterJob& adapter : job.adapters) json["seeds"][adapter.name] = adapter.seed;
    write_text_atomic(path, dump_json(json, 2) + "\n");
}

void RunDirectory::write_account(const RunAccount& account) const {
    const std::string path = dir_ + "/provenance.json";
    OrderedJson json = parse_ordered_json(read_text(path));
    set_account(json, account);
    replace_text(path, dump_json(json, 2) + "\n");
}

std::vector<RunAccount> RunDirectory::write_end(const std::string& reason,
                                                const RunAccount& account) const {
    const std::string path = dir_ + "/provenance.json";
    OrderedJson json = parse_ordered_json(read_text(path));
    json["starts"].back()["ended"] = moment_text();
    json["starts"].back()["reason"] = reason;
    std::vector<RunAccount> starts = set_account(json, account);
    write_text_atomic(path, dump_json(json, 2) + "\n");
    return starts;
}

std::vector<Library> all_libraries() {
    std::vector<Library> libraries{{"MPI", MpiRuntime::library_version()},
                                   {"HDF5", hdf5_version()}};
    for (const Library& library : backend_libraries()) libraries.push_back(library);
    if (!nccl_version().empty()) libraries.push_back({"NCCL", nccl_version()});
    for (const Library& library : libraries_of_the_build()) libraries.push_back(library);
    return libraries;
}

void RunDirectory::write_prediction(const std::string& text) const {
    const std::string path = dir_ + "/provenance.json";
    OrderedJson json = parse_ordered_json(read_text(path));
    json["starts"].back()["prediction"] = text;
    write_text_atomic(path, dump_json(json, 2) + "\n");
}

std::string last_prediction(const std::string& dir) {
    const std::string path = dir + "/provenance.json";
    std::string found;
    if (!std::filesystem::exists(path)) return found;
    const auto read = [&] {
        const OrderedJson json = parse_ordered_json(read_text(path));
        for (const OrderedJson& start : json.at("starts")) found = start.value("prediction", found);
    };
    warn_at_failure(read, path + " is not read for predictions: ");
    return found;
}

}  // namespace loratrain
