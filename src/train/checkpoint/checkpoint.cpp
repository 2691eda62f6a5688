#include "train/checkpoint/checkpoint.h"

#include <algorithm>
#include <filesystem>
#include <functional>

#include "base/error.h"
#include "base/log.h"
#include "config/job_yaml.h"
#include "io/files.h"
#include "io/json_text.h"
#include "io/raw_file.h"
#include "train/checkpoint/stored_adapter.h"
#include "train/records/best_adapter.h"

namespace loratrain {

namespace fs = std::filesystem;

namespace {

constexpr const char* latest_name = "LATEST";
constexpr const char* manifest_name = "manifest.json";
constexpr const char* state_name = "state.json";
constexpr const char* job_name = "job.yaml";
constexpr const char* temporary_suffix = ".tmp";
constexpr const char* manifest_format = "loratrain-checkpoint-1";

fs::path checkpoint_root(const Job& job) {
    return fs::path(job.run.dir) / "ckpt";
}

void write_adapter_state(const MpiSession& mpi, const Job& job, const Plan& plan, AdapterBank& bank,
                         AdapterId adapter, const fs::path& dir) {
    std::vector<NamedTensor> stored;
    for (const StoredPart& part : stored_parts) {
        for (NamedTensor& tensor : gather_adapter(mpi, job, plan, bank, adapter, part.part)) {
            tensor.name += part.suffix;
            stored.push_back(std::move(tensor));
        }
    }
    if (!mpi.is_root()) return;
    write_stored_adapter((dir / stored_adapter_name(job.adapter(adapter))).string(), stored,
                         bank.counters(adapter));
}

void write_manifest(const fs::path& dir, const RunIdentity& identity) {
    OrderedJson manifest;
    manifest["format"] = manifest_format;
    manifest["weights_checksum"] = identity.weights_checksum;
    manifest["data_checksums"] = identity.data_checksums;
    OrderedJson& files = manifest["files"] = OrderedJson::object();
    for (const auto& entry : fs::directory_iterator(dir)) {
        const std::string name = entry.path().filename().string();
        const bool hidden = name.starts_with('.');  // a removed file that somebody has open, on NFS
        if (!hidden) files[name] = file_checksum(entry.path().string());
    }
    write_text_atomic((dir / manifest_name).string(), dump_json(manifest, 2) + "\n");
}

/// LATEST; "" when there is none.
std::string latest_round(const Job& job) {
    const fs::path latest = checkpoint_root(job) / latest_name;
    if (!fs::exists(latest)) return "";
    std::string name = read_text(latest.string());
    while (!name.empty() && name.back() == '\n') name.pop_back();
    return name;
}

/// A released adapter has not changed since the last checkpoint.
void copy_from_latest(const Job& job, AdapterId adapter, const fs::path& dir) {
    const std::string name = stored_adapter_name(job.adapter(adapter));
    const fs::path source = checkpoint_root(job) / latest_round(job) / name;
    std::error_code error;
    if (!fs::copy_file(source, dir / name, error)) {
        throw Error(cat(source.string(), ": cannot be copied: ", error.message()));
    }
}

/// -1 when the name is no round.
std::int64_t round_of(const std::string& name) {
    const bool number =
        !name.empty() && name.size() < 10 &&
        std::all_of(name.begin(), name.end(), [](char c) { return c >= '0' && c <= '9'; });
    return number ? std::stoll(name) : -1;
}

/// Rounds whose checkpoints were completed, newest first.
std::vector<std::int64_t> stored_rounds(const Job& job) {
    std::vector<std::int64_t> rounds;
    if (!fs::is_directory(checkpoint_root(job))) return rounds;
    for (const auto& entry : fs::directory_iterator(checkpoint_root(job))) {
        const std::int64_t round = round_of(entry.path().filename().string());
        if (round >= 0) rounds.push_back(round);
    }
    std::sort(rounds.begin(), rounds.end(), std::greater<>());
    return rounds;
}

/// All but the newest `keep` up to `round`. Those beyond it belong to a continuation that was given
/// up by restarting from an older checkpoint.
void remove_old(const Job& job, std::int64_t round) {
    std::vector<std::int64_t> rounds = stored_rounds(job);
    const auto abandoned = std::partition(rounds.begin(), rounds.end(),
                                          [&](std::int64_t other) { return other <= round; });
    for (auto other = abandoned; other != rounds.end(); ++other) {
        remove_directory((checkpoint_root(job) / std::to_string(*other)).string());
    }
    rounds.erase(abandoned, rounds.end());
    std::sort(rounds.begin(), rounds.end(), std::greater<>());
    for (auto i = static_cast<std::size_t>(job.checkpoint.keep); i < rounds.size(); ++i) {
        remove_directory((checkpoint_root(job) / std::to_string(rounds[i])).string());
    }
}

void check_files(const fs::path& dir, const OrderedJson& manifest) {
    if (manifest.at("format").get<std::string>() != manifest_format) {
        throw InputError((dir / manifest_name).string(),
                         "format is not " + std::string(manifest_format));
    }
    Problems problems;
    for (const auto& [name, checksum] : manifest.at("files").items()) {
        const std::string path = (dir / name).string();
        if (!fs::exists(path)) {
            problems.add(path, "is missing from the checkpoint");
        } else if (file_checksum(path) != checksum.get<std::string>()) {
            problems.add(path, "is damaged (its checksum differs from the manifest)");
        }
    }
    problems.throw_if_any();
}

RunState read_state(const fs::path& dir, const Job& job) {
    const std::string path = (dir / state_name).string();
    return run_state_from_json(read_text(path), job, path);
}

/// What the manifest says about the run, besides its files.
struct Manifest {
    std::string weights_checksum;
    std::vector<std::string> data_checksums;
};

void check_identity(const fs::path& dir, const Manifest& manifest, const JobDifference& difference,
                    const RunIdentity& identity) {
    Problems problems;
    for (const std::string& line : difference.harmful) {
        problems.add(dir.string(), "the job has changed since this checkpoint: " + line,
                     "restore the old value, or use another run.dir, or start over with "
                     "--restart never");
    }
    const std::string& weights = manifest.weights_checksum;
    const std::string& weights_now = identity.weights_checksum;
    if (weights != weights_now && !weights_now.starts_with(weights + "-")) {
        problems.add(dir.string(),
                     "was written for other base weights or another config.json of theirs "
                     "(checksum differs)",
                     "use the same model.weights, or another run.dir");
    }
    const std::vector<std::string>& data = manifest.data_checksums;
    const auto& data_now = identity.data_checksums;
    if (data.size() > data_now.size() || !std::equal(data.begin(), data.end(), data_now.begin())) {
        problems.add(dir.string(), "was written for other training data (checksum differs)",
                     "use the same data files, or another run.dir");
    }
    problems.throw_if_any();
}

/// State and adapters are what this job could have left. Checksums cannot tell: they are those of
/// whatever was written.
void check_contents(const fs::path& dir, const Job& job, const Plan& plan) {
    const RunState state = read_state(dir, job);
    Problems problems;
    const std::int64_t named = round_of(dir.filename().string());
    if (named >= 0 && named != state.round) {
        problems.add((dir / state_name).string(),
                     cat("is the state of round ", state.round, ", not of ", named));
    }
    for (std::size_t i = 0; i < job.adapters.size(); ++i) {
        const AdapterState& adapter = state.adapters[i];
        const std::int32_t most = plan.adapters[i].total_steps;
        if (adapter.steps > most) {
            problems.add((dir / state_name).string(),
                         cat("adapter ", job.adapters[i].name, " has taken ", adapter.steps,
                             " steps, has only ", most));
        }
        const fs::path file = dir / stored_adapter_name(job.adapters[i]);
        const fs::path best = dir / kept_best_name(job.adapters[i]);
        try {
            const bool kept = adapter.steps > 0 && !is_ended_trial(job.adapters[i], adapter);
            if (kept || fs::exists(file)) {
                check_stored_adapter(file.string(), job.adapters[i], plan.model);
            }
            if (fs::exists(best)) {
                check_stored_parameters(best.string(), job.adapters[i], plan.model);
            }
        } catch (const UnreadableFile&) {
            throw;
        } catch (const InputError& error) {
            problems.add(error);
        }
    }
    problems.throw_if_any();
}

/// The manifest of an undamaged checkpoint; InputError names every damaged file.
Manifest checked_manifest(const fs::path& dir) {
    const std::string path = (dir / manifest_name).string();
    try {
        const OrderedJson manifest = parse_ordered_json(read_text(path));
        check_files(dir, manifest);
        return {manifest.at("weights_checksum").get<std::string>(),
                manifest.at("data_checksums").get<std::vector<std::string>>()};
    } catch (const OrderedJson::exception& error) {
        throw InputError(path, "is damaged: " + json_reason(error));
    }
}

/// Where to look when no checkpoint is asked for, in this order.
std::vector<std::int64_t> rounds_to_try(const Job& job) {
    std::vector<std::int64_t> rounds = stored_rounds(job);
    const std::int64_t newest = round_of(latest_round(job));
    if (newest < 0) return rounds;
    std::erase_if(rounds, [&](std::int64_t round) { return round >= newest; });
    rounds.insert(rounds.begin(), newest);
    return rounds;
}

/// What throws InputError when it is damaged, or when it belongs to another job.
void check_checkpoint(const fs::path& dir, const Job& job, const Plan& plan,
                      const RunIdentity& identity, const std::function<void(InputError)>& damaged) {
    const auto judge = [&](const std::function<void()>& work) {
        try {
            work();
            return true;
        } catch (const UnreadableFile&) {
            throw;
        } catch (const InputError& error) {
            damaged(error);
            return false;
        }
    };
    Manifest manifest;
    JobDifference difference;
    const bool whole = judge([&] {
        manifest = checked_manifest(dir);
        const std::string path = (dir / job_name).string();
        difference = compare_jobs(read_text(path), identity.job_yaml, path);
    });
    if (!whole) return;
    check_identity(dir, manifest, difference, identity);
    if (!judge([&] { check_contents(dir, job, plan); })) return;
    for (const std::string& line : difference.harmless) log::info("job changed: " + line);
}

FoundCheckpoint newest_undamaged(const Job& job, const Plan& plan, const RunIdentity& identity,
                                 const std::vector<std::int64_t>& rounds) {
    FoundCheckpoint found;
    Problems damage;
    for (const std::int64_t round : rounds) {
        const fs::path dir = checkpoint_root(job) / std::to_string(round);
        const std::size_t before = found.damaged.size();
        check_checkpoint(dir, job, plan, identity, [&](const InputError& error) {
            damage.add(error);
            found.damaged.push_back(dir.string() + ": " + error.what());
        });
        if (found.damaged.size() > before) continue;
        found.path = dir.string();
        found.set_back = !found.damaged.empty();
        return found;
    }
    damage.add(checkpoint_root(job).string(), "holds no checkpoint that can be used",
               "start over with --restart never");
    damage.throw_if_any();
    return found;
}

}  // namespace

void save_checkpoint(const MpiSession& mpi, const Job& job, const Plan& plan, AdapterBank& bank,
                     const RunState& state, const RunIdentity& identity) {
    const fs::path root = checkpoint_root(job);
    const fs::path target = root / std::to_string(state.round);
    const fs::path temporary = root / (std::to_string(state.round) + temporary_suffix);
    if (mpi.is_root()) {
        make_directory(root.string());
        remove_unfinished_writes(root.string());
        remove_unfinished_directories(root.string());
        make_directory(temporary.string());
    }
    for (std::size_t i = 0; i < job.adapters.size(); ++i) {
        const auto adapter = static_cast<AdapterId>(i);
        const Residence residence = bank.residence(adapter);
        if (residence == Residence::absent) continue;
        if (residence != Residence::released) {
            write_adapter_state(mpi, job, plan, bank, adapter, temporary);
        } else if (mpi.is_root() && !job.adapters[i].trial) {
            copy_from_latest(job, adapter, temporary);
        }
    }
    if (!mpi.is_root()) return;
    write_text_atomic((temporary / state_name).string(), to_json(state, job));
    write_text_atomic((temporary / job_name).string(), identity.job_yaml);
    keep_best_adapters(job, state, temporary.string());
    write_manifest(temporary, identity);
    replace_directory(temporary.string(), target.string());
    write_text_atomic((root / latest_name).string(), std::to_string(state.round) + "\n");
    remove_old(job, state.round);
}

std::optional<FoundCheckpoint> find_checkpoint(const Job& job, const Plan& plan,
                                               const RunIdentity& identity,
                                               const std::string& asked) {
    if (!asked.empty()) {
        check_checkpoint(asked, job, plan, identity, [](const InputError& error) { throw error; });
        return FoundCheckpoint{asked, true, {}};
    }
    const std::vector<std::int64_t> rounds = rounds_to_try(job);
    if (rounds.empty()) return std::nullopt;
    return newest_undamaged(job, plan, identity, rounds);
}

RunState load_checkpoint(const std::string& path, const Job& job, const ModelSpec& model,
                         const StagePlan& stage, AdapterBank& bank) {
    RunState state = read_state(path, job);
    for (std::size_t i = 0; i < job.adapters.size(); ++i) {
        const std::string file = (fs::path(path) / stored_adapter_name(job.adapters[i])).string();
        const bool kept =
            state.adapters[i].steps > 0 && !is_ended_trial(job.adapters[i], state.adapters[i]);
        if (!kept && !fs::exists(file)) continue;
        load_stored_adapter(file, job.adapters[i], model, stage, static_cast<AdapterId>(i), bank);
    }
    return state;
}

}  // namespace loratrain
