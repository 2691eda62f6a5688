#include "train/checkpoint/worker_checkpoints.h"

#include <algorithm>
#include <filesystem>
#include <set>

#include "base/error.h"
#include "io/files.h"
#include "train/checkpoint/checkpoint_folder.h"
#include "train/checkpoint/stored_adapter.h"

namespace loratrain {

namespace fs = std::filesystem;

namespace {

constexpr const char* start_word = "start-";
constexpr const char* worker_word = "-worker-";

/// Of the start that a folder of this name belongs to; 0 = it is no worker's.
int start_of(const std::string& name) {
    const std::string_view word = start_word;
    if (name.ends_with(".tmp") || !name.starts_with(word) ||
        name.find(worker_word) == std::string::npos)
        return 0;
    const std::size_t end = name.find('-', word.size());
    const std::string digits = name.substr(word.size(), end - word.size());
    const bool number = !digits.empty() && digits.size() < 9 &&
                        digits.find_first_not_of("0123456789") == std::string::npos;
    return number ? std::stoi(digits) : 0;
}

/// Roots of all workers of all starts, by name.
std::set<std::string> worker_roots(const Job& job) {
    std::set<std::string> roots;
    const fs::path folder = checkpoint_folder(job).string();
    if (!fs::is_directory(folder)) return roots;
    for (const auto& entry : fs::directory_iterator(folder)) {
        if (entry.is_directory() && start_of(entry.path().filename().string()) > 0) {
            roots.insert(entry.path().string());
        }
    }
    return roots;
}

void take(const FormerCheckpoint& stored, const RunState& state, FormerRun& former) {
    former.state.round = std::max(former.state.round, state.round);
    former.state.elapsed_seconds = std::max(former.state.elapsed_seconds, state.elapsed_seconds);
    for (std::size_t a = 0; a < state.adapters.size(); ++a) {
        const AdapterState& known = former.state.adapters[a];
        const AdapterState& found = state.adapters[a];
        const bool more = found.steps > known.steps ||
                          (found.steps == known.steps && found.rungs.size() > known.rungs.size());
        if (!more && !(is_untouched(known) && !is_untouched(found))) continue;
        former.state.adapters[a] = found;
        former.checkpoints[a] = stored.steps[a] > 0 ? stored.path : "";
    }
}

}  // namespace

std::string worker_checkpoint_root(const Job& job, int start, int worker) {
    return cat(checkpoint_folder(job).string(), "/", start_word, start, worker_word, worker);
}

std::string move_checkpoint_root(const std::string& worker_root, int move) {
    return cat(worker_root, "-move-", move);
}

bool has_worker_checkpoints(const Job& job) {
    return !worker_roots(job).empty();
}

FormerRun find_former_run(const Job& job, const Plan& plan, const RunIdentity& identity) {
    FormerRun former;
    former.state.adapters.assign(job.adapters.size(), not_begun());
    former.checkpoints.resize(job.adapters.size());
    std::set<std::string> roots = worker_roots(job);
    for (const std::string& root : roots) {
        former.starts = std::max(former.starts, start_of(fs::path(root).filename().string()));
    }
    roots.insert(checkpoint_folder(job).string());
    for (const std::string& root : roots) {
        const auto found = newest_checkpoint(root, job, plan, identity);
        if (!found) continue;
        former.damaged.insert(former.damaged.end(), found->damaged.begin(), found->damaged.end());
        if (!found->note.empty()) former.notes.push_back(found->note);
        const RunState state = stored_state(found->path, job);
        FormerCheckpoint& stored =
            former.stored.emplace_back(FormerCheckpoint{root, found->path, {}});
        for (std::size_t a = 0; a < job.adapters.size(); ++a) {
            const fs::path file = fs::path(found->path) / stored_adapter_name(job.adapters[a]);
            stored.steps.push_back(fs::exists(file) ? state.adapters[a].steps : 0);
        }
        take(stored, state, former);
    }
    return former;
}

void FormerCheckpoints::add(const std::string& path, AdapterId adapter, std::int32_t steps) {
    auto found = std::find_if(stored_.begin(), stored_.end(),
                              [&](const FormerCheckpoint& stored) { return stored.path == path; });
    if (found == stored_.end()) {
        found = stored_.insert(found, {fs::path(path).parent_path().string(), path, {}});
    }
    found->steps.resize(std::max(found->steps.size(), index(adapter) + 1), 0);
    found->steps[index(adapter)] = steps;
}

void FormerCheckpoints::remove_superseded(const std::vector<std::int32_t>& saved) {
    std::erase_if(stored_, [&](const FormerCheckpoint& stored) {
        for (std::size_t a = 0; a < stored.steps.size(); ++a) {
            if (stored.steps[a] > saved[a]) return false;
        }
        const bool worker = start_of(fs::path(stored.root).filename().string()) > 0;
        if (worker) {
            remove_at_once(stored.root);
        } else {
            remove_checkpoints(stored.root);
        }
        return true;
    });
}

}  // namespace loratrain
