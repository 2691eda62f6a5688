#include "train/checkpoint/run_state.h"

#include <algorithm>
#include <map>

#include "base/error.h"
#include "base/text.h"
#include "config/text_archive.h"

namespace loratrain {

namespace {

/// As state.json has an adapter.
struct StoredState {
    AdapterState state;
    std::uint64_t seed = 0;
};

template <class Archive>
void fields(Archive& archive, StoredState& stored) {
    fields(archive, stored.state);
    archive.note("seed", stored.seed);
}

struct StoredDeployment {
    std::vector<std::string> made_for;
    std::vector<std::string> judged_for;
};

template <class Archive>
void fields(Archive& archive, StoredDeployment& deployment) {
    archive("made_for", deployment.made_for);
    archive("judged_for", deployment.judged_for);
}

/// RunState with adapters by their names.
struct StoredRun {
    std::int32_t round = 0;
    double elapsed_seconds = 0.0;
    std::vector<std::pair<std::string, StoredState>> adapters;
    std::optional<StoredDeployment> deployment;
};

template <class Archive>
void fields(Archive& archive, StoredRun& run) {
    archive("round", at_least(0, run.round));
    archive("elapsed_seconds", run.elapsed_seconds);
    archive("adapters", run.adapters);
    archive("deployment", run.deployment);
}

std::vector<std::string> names_of(const std::vector<AdapterId>& adapters, const Job& job) {
    std::vector<std::string> names;
    for (const AdapterId adapter : adapters) names.push_back(job.adapter(adapter).name);
    return names;
}

/// Ascending.
std::vector<AdapterId> adapters_named(const std::vector<std::string>& names, const Job& job) {
    std::vector<AdapterId> adapters;
    for (std::size_t a = 0; a < job.adapters.size(); ++a) {
        if (std::find(names.begin(), names.end(), job.adapters[a].name) != names.end()) {
            adapters.push_back(static_cast<AdapterId>(a));
        }
    }
    return adapters;
}

/// What no run can have come to, "" = nothing.
std::string inconsistency(const AdapterState& a, std::int32_t round) {
    if (a.steps > round) return cat("has taken ", a.steps, " steps in ", round, " rounds");
    if (a.bad_steps_in_row > a.steps) return cat("has ", a.bad_steps_in_row, " bad steps");
    const auto rungs = static_cast<int>(a.rungs.size());
    if (a.promoted > rungs) return cat("is past ", a.promoted, " of ", rungs, " rungs");
    if (a.best_step > a.steps) return cat("was best at step ", a.best_step, " of ", a.steps);
    return "";
}

}  // namespace

std::vector<AdapterId> unfinished_in(const RunState& state) {
    std::vector<AdapterId> adapters;
    for (std::size_t a = 0; a < state.adapters.size(); ++a) {
        if (is_unfinished(state.adapters[a].status)) adapters.push_back(static_cast<AdapterId>(a));
    }
    return adapters;
}

void take_step(std::int32_t steps, double loss, bool finite, AdapterState& adapter) {
    adapter.steps = steps;
    adapter.last_loss = loss;
    adapter.losses.add(loss);
    if (adapter.bad_steps_in_row >= bad_steps_allowed) return;
    adapter.bad_steps_in_row = finite ? 0 : adapter.bad_steps_in_row + 1;
}

void take_evaluation(double loss, double exact_match, AdapterState& adapter) {
    adapter.last_eval_loss = loss;
    adapter.last_exact_match = exact_match;
    if (adapter.first_eval_loss < 0) {
        adapter.first_eval_loss = loss;
        adapter.first_exact_match = exact_match;
    }
}

std::string failure_reason(const AdapterState& adapter, std::int32_t total_steps) {
    if (adapter.bad_steps_in_row >= bad_steps_allowed) {
        return cat("gradients were not finite in ", bad_steps_allowed,
                   " steps in a row; it was given up after step ", adapter.steps);
    }
    if (adapter.steps >= total_steps && !std::isfinite(adapter.last_loss)) {
        return "the loss of the last step is not finite";
    }
    return "";
}

std::string done_text(const EvalJob& eval, const AdapterState& adapter) {
    std::string text = cat(adapter.steps, " steps");
    if (adapter.status == AdapterStatus::stopped_early) {
        text += ", stopped early: " + early_stop_reason(eval, adapter);
    }
    if (adapter.status == AdapterStatus::stopped) {
        text += ", " + (adapter.reason.empty() ? "stopped by the user" : adapter.reason);
    }
    if (adapter.status == AdapterStatus::pruned) text += ", " + adapter.reason;
    return text + "\n";
}

std::string to_json(const RunState& state, const Job& job) {
    StoredRun run{state.round, state.elapsed_seconds, {}, {}};
    for (std::size_t i = 0; i < state.adapters.size(); ++i) {
        const AdapterJob& adapter = job.adapters[i];
        run.adapters.push_back({adapter.name, {state.adapters[i], adapter.seed}});
    }
    const auto& [made_for, judged_for] = state.deployment;
    if (!judged_for.empty()) run.deployment = {names_of(made_for, job), names_of(judged_for, job)};
    return json_text(text_tree(run));
}

RunState run_state_from_json(const std::string& text, const Job& job, const std::string& where) {
    const TextForm form{"the state of this job",
                        "delete this checkpoint directory to continue from the one before it"};
    const auto run = read_text_as<StoredRun>(text, where, form);
    const std::map<std::string, StoredState> known(run.adapters.begin(), run.adapters.end());
    RunState state{run.round, run.elapsed_seconds, {}, {}};
    for (const AdapterJob& adapter : job.adapters) {
        const auto found = known.find(adapter.name);
        AdapterState& a = state.adapters.emplace_back(not_begun());
        if (found != known.end()) a = found->second.state;
        const std::string problem = inconsistency(a, state.round);
        if (!problem.empty()) {
            throw InputError(
                where,
                cat("cannot be read as ", form.what, ": adapter ", adapter.name, " ", problem),
                std::string(form.hint));
        }
    }
    if (run.deployment) {
        state.deployment = {adapters_named(run.deployment->made_for, job),
                            adapters_named(run.deployment->judged_for, job)};
    }
    return state;
}

bool note_evaluation(const EvalJob& eval, std::int32_t step, AdapterState& adapter) {
    const double loss = adapter.last_eval_loss;
    const bool first = adapter.best_step == 0;
    const bool best = std::isfinite(loss) && (first || loss < adapter.best_eval_loss);
    const bool gain =
        best && (first || adapter.best_eval_loss - loss > eval.early_stopping_threshold);
    adapter.evaluations_without_gain = gain ? 0 : adapter.evaluations_without_gain + 1;
    if (best) {
        adapter.best_eval_loss = loss;
        adapter.best_step = step;
    }
    return best;
}

std::string early_stop_reason(const EvalJob& eval, const AdapterState& adapter) {
    const int patience = eval.early_stopping_patience;
    if (patience == 0 || adapter.evaluations_without_gain < patience) return "";
    std::string reason =
        cat("no better eval loss in ", adapter.evaluations_without_gain, " evaluations");
    if (adapter.best_step == 0) return reason;
    return cat(reason, "; the best was ", format_fixed(adapter.best_eval_loss, 4), " at step ",
               adapter.best_step);
}

}  // namespace loratrain
