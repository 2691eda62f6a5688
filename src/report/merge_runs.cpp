#include "report/merge_runs.h"

#include <algorithm>
#include <filesystem>
#include <limits>
#include <map>
#include <utility>

#include "base/error.h"
#include "config/best_job.h"
#include "config/job_yaml.h"
#include "io/files.h"
#include "plan/rungs.h"

namespace loratrain {

namespace fs = std::filesystem;

namespace {

constexpr const char* merged_job_name = "/best.yaml";

/// An adapter of one of the runs.
struct Member {
    const RunRecord* run = nullptr;
    AdapterId adapter{};

    const AdapterJob& job() const { return run->job.adapter(adapter); }
};

/// The trials of all runs in turn, for shards are dealt so; adapters that are none before them.
std::vector<Member> members_of(const std::vector<RunRecord>& runs) {
    std::vector<Member> members;
    std::vector<std::vector<Member>> trials(runs.size());
    std::size_t most = 0;
    for (std::size_t r = 0; r < runs.size(); ++r) {
        for (std::size_t a = 0; a < runs[r].job.adapters.size(); ++a) {
            const Member member{&runs[r], static_cast<AdapterId>(a)};
            if (member.job().trial) {
                trials[r].push_back(member);
            } else if (r == 0) {
                members.push_back(member);
            }
        }
        most = std::max(most, trials[r].size());
    }
    for (std::size_t t = 0; t < most; ++t) {
        for (const auto& of_run : trials) {
            if (t < of_run.size()) members.push_back(of_run[t]);
        }
    }
    return members;
}

bool same_data(const Job& one, const Job& other) {
    return std::equal(one.datasets.begin(), one.datasets.end(), other.datasets.begin(),
                      other.datasets.end(), [](const DatasetJob& a, const DatasetJob& b) {
                          return a.name == b.name && a.paths() == b.paths() &&
                                 a.eval_paths() == b.eval_paths();
                      });
}

void check_one_sweep(const std::vector<RunRecord>& runs) {
    Problems problems;
    const Job& first = runs.front().job;
    const char* hint = "keep the shards of one sweep, and nothing else, in a directory";
    std::map<std::string, std::string> seen;
    for (const RunRecord& run : runs) {
        const Job& job = run.job;
        const std::string as = " as " + runs.front().dir + " has";
        if (!job.sweep) {
            problems.add(run.dir, "is a run without a sweep", hint);
        } else if (first.sweep && job.sweep->objective != first.sweep->objective) {
            problems.add(run.dir, "its sweep.objective is not the same" + as, hint);
        }
        if (job.model.weights != first.model.weights) {
            problems.add(run.dir, "its model.weights are not the same" + as, hint);
        }
        if (!same_data(job, first)) {
            problems.add(run.dir, "its datasets are not the same" + as, hint);
        }
        for (const AdapterJob& adapter : job.adapters) {
            if (!adapter.trial) continue;
            const auto [known, fresh] = seen.emplace(adapter.name, run.dir);
            if (fresh) continue;
            problems.add(run.dir, cat("trial ", adapter.name, " is in ", known->second, " too"),
                         "give every run its own part, as in sweep.shard=0/4 and 1/4");
        }
    }
    problems.throw_if_any();
}

/// Alive where any is; else as the first one that is not done.
RunStatus merged_status(const std::vector<RunRecord>& runs) {
    const auto weight = [](const RunRecord& run) {
        if (!run.status) return 0;
        return run.status->state == "running" ? 3 : run.status->state == "done" ? 1 : 2;
    };
    RunStatus merged =
        *std::max_element(runs.begin(), runs.end(), [&](const auto& a, const auto& b) {
             return weight(a) < weight(b);
         })->status;
    merged.round = merged.rounds = merged.ranks = 0;
    merged.tokens_per_second = 0.0;
    for (const RunRecord& run : runs) {
        if (!run.status) continue;
        const RunStatus& status = *run.status;
        merged.round += status.round;
        merged.rounds += status.rounds;
        merged.ranks += status.ranks;
        merged.elapsed_seconds = std::max(merged.elapsed_seconds, status.elapsed_seconds);
        merged.tokens_per_second += status.tokens_per_second;
        merged.updated = std::max(merged.updated, status.updated);
    }
    merged.adapters.clear();
    return merged;
}

TrialStanding standing_of(const Job& job, const AdapterResult& result) {
    TrialStanding standing{result.adapter, TrialStage::partial, result.trial->rung,
                           std::numeric_limits<double>::infinity()};
    if (result.status == "DONE" || result.status == "STOPPED EARLY") {
        standing.stage = TrialStage::complete;
    } else if (result.status == "FAILED") {
        standing.stage = TrialStage::failed;
    }
    const bool higher_is_better = job.sweep->objective == SweepObjective::exact_match;
    const std::optional<double>& value = result.trial->objective;
    if (value) standing.value = higher_is_better ? -*value : *value;
    return standing;
}

void rank_anew(RunRecord& run) {
    std::map<DatasetId, std::vector<TrialStanding>> trials;
    for (const AdapterResult& result : run.results) {
        if (!result.trial) continue;
        trials[run.job.adapter(result.adapter).dataset].push_back(standing_of(run.job, result));
    }
    std::map<AdapterId, std::size_t> ranks;
    for (const auto& [dataset, of_dataset] : trials) {
        std::size_t rank = 0;
        for (const TrialStanding& trial : rank_trials(of_dataset)) ranks[trial.trial] = ++rank;
    }
    for (AdapterResult& result : run.results) {
        if (result.trial) result.trial->rank = ranks.at(result.adapter);
    }
    sort_results(run.job, run.results);
}

std::vector<fs::path> run_directories_in(const std::string& dir) {
    std::vector<fs::path> found;
    for (const auto& entry : fs::directory_iterator(dir)) {
        if (is_run_directory(entry.path())) found.push_back(entry.path());
    }
    std::sort(found.begin(), found.end(), [](const fs::path& a, const fs::path& b) {
        const std::string one = a.filename();
        const std::string other = b.filename();
        return std::pair(one.size(), one) < std::pair(other.size(), other);
    });
    return found;
}

}  // namespace

RunRecord merge_runs(const std::string& dir, const std::vector<RunRecord>& runs) {
    check_one_sweep(runs);
    RunRecord merged;
    merged.dir = dir;
    merged.job = runs.front().job;
    merged.job.adapters.clear();
    merged.job.run.dir = dir;
    merged.job_yaml = runs.front().job_yaml;
    merged.provenance_json = runs.front().provenance_json;
    for (const RunRecord& run : runs) merged.parts.push_back(run.dir);
    const bool has_status =
        std::any_of(runs.begin(), runs.end(), [](const auto& r) { return r.status; });
    if (has_status) {
        merged.status = merged_status(runs);
        merged.pulse = pulse_now(*merged.status);
    }
    for (const Member& member : members_of(runs)) {
        const auto id = static_cast<AdapterId>(merged.job.adapters.size());
        merged.job.adapters.push_back(member.job());
        merged.metrics.push_back(member.run->metrics[index(member.adapter)]);
        const std::vector<std::string>& texts = member.run->generations;
        const std::size_t place = index(member.adapter);
        merged.generations.push_back(place < texts.size() ? texts[place] : "");
        for (const AdapterResult& result : member.run->results) {
            if (result.adapter != member.adapter) continue;
            AdapterResult& taken = merged.results.emplace_back(result);
            taken.adapter = id;
            taken.run = fs::path(member.run->dir).filename();
        }
    }
    rank_anew(merged);
    return merged;
}

RunRecord read_runs(const std::string& dir) {
    if (is_run_directory(dir) || !fs::is_directory(dir)) return read_run(dir);
    std::vector<RunRecord> runs;
    for (const fs::path& path : run_directories_in(dir)) runs.push_back(read_run(path));
    return runs.empty() ? read_run(dir) : merge_runs(dir, runs);
}

void write_results(const RunRecord& run) {
    write_text_atomic(run.dir + "/" + results_file_name, results_csv(run.job, run.results));
}

void write_merged(const RunRecord& run) {
    write_results(run);
    std::vector<AdapterId> best;
    for (const AdapterResult& result : run.results) {
        const bool first = result.trial && result.trial->rank == 1;
        if (first && result.trial->objective) best.push_back(result.adapter);
    }
    if (best.empty()) return;
    const std::string run_dir = fs::absolute(run.dir) / "best";
    write_text_atomic(run.dir + merged_job_name, to_yaml(job_of_best(run.job, best, run_dir)));
}

}  // namespace loratrain
