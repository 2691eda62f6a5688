#include "train/checkpoint/checkpoint_reader.h"

#include <algorithm>
#include <filesystem>
#include <functional>

#include "base/error.h"
#include "base/log.h"
#include "config/job_yaml.h"
#include "io/adapters/exported_adapter.h"
#include "io/files.h"
#include "io/json_text.h"
#include "io/raw_file.h"
#include "train/checkpoint/best_adapter.h"
#include "train/checkpoint/checkpoint_folder.h"
#include "train/checkpoint/checkpoint_writer.h"
#include "train/checkpoint/stored_adapter.h"

namespace loratrain {

namespace fs = std::filesystem;

namespace {

void check_files(const fs::path& dir, const OrderedJson& manifest) {
    check_format((dir / checkpoint_manifest_name).string(),
                 manifest.at("format").get<std::string>(), {checkpoint_format});
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
    const std::string path = (dir / checkpoint_state_name).string();
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
    if (manifest.weights_checksum != identity.weights_checksum) {
        problems.add(dir.string(),
                     "was written for another base: its weights or its config.json differ "
                     "(by their checksums)",
                     "use the same model.weights, or another run.dir");
    }
    const std::vector<std::string>& data = manifest.data_checksums;
    const auto& data_now = identity.data_checksums;
    if (data.size() > data_now.size() || !std::equal(data.begin(), data.end(), data_now.begin())) {
        problems.add(dir.string(), "was written for other training data (by their checksums)",
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
        problems.add((dir / checkpoint_state_name).string(),
                     cat("is the state of round ", state.round, ", not of ", named));
    }
    for (std::size_t i = 0; i < job.adapters.size(); ++i) {
        const AdapterState& adapter = state.adapters[i];
        const std::int32_t most = plan.adapters[i].total_steps;
        if (adapter.steps > most) {
            problems.add((dir / checkpoint_state_name).string(),
                         cat("says that adapter ", job.adapters[i].name, " has taken ",
                             adapter.steps, " steps, but the job gives it only ", most));
        }
        const fs::path file = dir / stored_adapter_name(job.adapters[i]);
        const fs::path best = dir / kept_best_name(job.adapters[i]);
        try {
            const bool kept = adapter.steps > 0 && !is_ended_trial(job.adapters[i], adapter);
            if (kept || fs::exists(file)) {
                check_stored_adapter(file.string(), job.adapters[i], plan.model);
            }
            if (fs::exists(best)) {
                check_stored_parameters(best.string(), exported_job(job.adapters[i]), plan.model);
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
    const std::string path = (dir / checkpoint_manifest_name).string();
    try {
        const OrderedJson manifest = parse_ordered_json(read_text(path));
        check_files(dir, manifest);
        return {manifest.at("weights_checksum").get<std::string>(),
                manifest.at("data_checksums").get<std::vector<std::string>>()};
    } catch (const OrderedJson::exception& error) {
        throw InputError(path, "is damaged: " + json_reason(error));
    }
}

/// Where to look when no checkpoint is asked for, in this order: the round that LATEST says, those
/// before it, those behind it.
std::vector<std::int64_t> rounds_to_try(const fs::path& root) {
    std::vector<std::int64_t> rounds = stored_rounds(root);
    const auto named = std::find(rounds.begin(), rounds.end(), round_of(latest_round(root)));
    if (named != rounds.end()) std::rotate(rounds.begin(), named, rounds.end());
    return rounds;
}

/// The note on a LATEST that does not name the newest of the rounds to try.
std::string note_on_latest(const fs::path& root, const std::vector<std::int64_t>& rounds) {
    const std::string said = latest_round(root);
    const std::int64_t newest = *std::max_element(rounds.begin(), rounds.end());
    const std::string latest = (root / "LATEST").string();
    const std::int64_t used = rounds.front();
    if (used != round_of(said)) {
        return cat(latest, said.empty() ? " is missing or empty" : cat(" says '", said, "'"),
                   ", of which there is no checkpoint; the newest, ", used, ", is tried first");
    }
    if (used == newest) return "";
    return cat(latest, " says ", used, "; ", newest,
               ", which is newer, is not used (--restart PATH begins from it)");
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
        const std::string path = (dir / checkpoint_job_name).string();
        difference = compare_jobs(read_text(path), identity.job_yaml, path, identity.backends);
    });
    if (!whole) return;
    check_identity(dir, manifest, difference, identity);
    if (!judge([&] { check_contents(dir, job, plan); })) return;
    for (const std::string& line : difference.harmless) log::info("job changed: " + line);
}

FoundCheckpoint newest_undamaged(const fs::path& root, const Job& job, const Plan& plan,
                                 const RunIdentity& identity,
                                 const std::vector<std::int64_t>& rounds) {
    FoundCheckpoint found;
    found.note = note_on_latest(root, rounds);
    Problems damage;
    std::optional<InputError> of_another_run;
    for (const std::int64_t round : rounds) {
        const fs::path dir = root / std::to_string(round);
        const std::size_t before = found.damaged.size();
        const auto pass_by = [&](const InputError& error) {
            damage.add(error);
            found.damaged.push_back(dir.string() + ": " + error.what());
        };
        try {
            check_checkpoint(dir, job, plan, identity, pass_by);
        } catch (const UnreadableFile&) {
            throw;
        } catch (const InputError& error) {
            // A manifest says so, which has no checksum itself: are those before of this run?
            if (!of_another_run) of_another_run = error;
            pass_by(error);
        }
        if (found.damaged.size() > before) continue;
        found.path = dir.string();
        found.set_back = !found.damaged.empty();
        return found;
    }
    if (of_another_run) throw *of_another_run;
    damage.add(root.string(), "holds no checkpoint that can be used",
               "start over with --restart never");
    damage.throw_if_any();
    return found;
}

}  // namespace

std::optional<FoundCheckpoint> find_checkpoint(const Job& job, const Plan& plan,
                                               const RunIdentity& identity,
                                               const std::string& asked) {
    if (!asked.empty()) {
        check_checkpoint(asked, job, plan, identity, [](const InputError& error) { throw error; });
        return FoundCheckpoint{asked, true, {}, {}};
    }
    return newest_checkpoint(checkpoint_folder(job).string(), job, plan, identity);
}

void remove_at_once(const std::string& directory) {
    const std::string aside = directory + ".tmp";
    std::error_code error;
    fs::rename(directory, aside, error);
    remove_directory(error ? directory : aside);
}

std::optional<FoundCheckpoint> newest_checkpoint(const std::string& root, const Job& job,
                                                 const Plan& plan, const RunIdentity& identity) {
    const std::vector<std::int64_t> rounds = rounds_to_try(root);
    if (rounds.empty() && latest_round(root).empty()) return std::nullopt;
    if (rounds.empty()) {
        throw InputError(
            root, cat("has no checkpoint, though its file LATEST names '", latest_round(root), "'"),
            "start over with --restart never");
    }
    return newest_undamaged(root, job, plan, identity, rounds);
}

RunState stored_state(const std::string& path, const Job& job) {
    return read_state(path, job);
}

void remove_checkpoints(const std::string& root) {
    remove_latest_round(root);
    for (const std::int64_t round : stored_rounds(root)) {
        remove_at_once((fs::path(root) / std::to_string(round)).string());
    }
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
