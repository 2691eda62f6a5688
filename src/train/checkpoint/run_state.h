#pragma once

#include <cmath>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "base/archive.h"
#include "base/ids.h"
#include "base/means.h"
#include "config/job_words.h"

namespace loratrain {

enum class AdapterStatus : std::uint8_t {
    running,        ///< admitted: it trains
    waiting,        ///< not admitted: it has not begun, or makes room for others
    done,           ///< all its steps are taken
    stopped_early,  ///< its eval loss gained no more
    stopped,        ///< by the user (inbox.h)
    failed,
    parked,  ///< a trial at a rung (plan/rungs.h), until it is judged
    pruned,  ///< a trial that was judged not to go on
};
inline constexpr std::array<Word<AdapterStatus>, 8> status_words{{
    {"RUNNING", AdapterStatus::running},
    {"WAITING", AdapterStatus::waiting},
    {"DONE", AdapterStatus::done},
    {"STOPPED EARLY", AdapterStatus::stopped_early},
    {"STOPPED", AdapterStatus::stopped},
    {"FAILED", AdapterStatus::failed},
    {"PARKED", AdapterStatus::parked},
    {"PRUNED", AdapterStatus::pruned},
}};
inline std::string status_name(AdapterStatus status) {
    return word_of(status_words, status);
}

/// The progress of a run and of its adapters, as checkpoints keep it.

/// An adapter's progress. Only rank 0 keeps it current; other ranks have it as it was loaded.
struct AdapterState {
    std::int32_t steps = 0;             ///< optimizer steps taken (skipped ones included)
    std::int32_t bad_steps_in_row = 0;  ///< consecutive steps with non-finite gradients
    AdapterStatus status = AdapterStatus::running;
    double last_loss = 0.0;
    double first_eval_loss = -1.0;  ///< -1 = not evaluated
    double last_eval_loss = -1.0;
    double first_exact_match = -1.0;  ///< pairs: the reward accuracy; kto: -1
    double last_exact_match = -1.0;
    double best_eval_loss = -1.0;  ///< among evaluations during training; -1 = none
    std::int32_t best_step = 0;    ///< step of best_eval_loss
    std::int32_t evaluations_without_gain = 0;
    LastMean losses{};  ///< of the last steps

    // A trial of a sweep with rungs (plan/rungs.h).
    std::vector<double> rungs{};  ///< its values at the rungs reached; lower is better
    int promoted = 0;             ///< rungs passed
    std::string reason{};         ///< why it ended before its last step; may be ""

    // Of a dataset that grows (services/arrivals.h).
    std::int32_t file = 0;          ///< number of the file that the next step's batch is in
    std::int32_t file_batches = 0;  ///< batches of that file that are trained
};
template <class Archive>
void fields(Archive& archive, AdapterState& state) {
    std::vector<double> losses = state.losses.values();
    archive("steps", at_least(0, state.steps));
    archive("status", worded(state.status, status_words));
    archive("bad_steps_in_row", at_least(0, state.bad_steps_in_row));
    archive("last_loss", state.last_loss);
    archive("losses", losses);
    archive("first_eval_loss", state.first_eval_loss);
    archive("last_eval_loss", state.last_eval_loss);
    archive("first_exact_match", state.first_exact_match);
    archive("last_exact_match", state.last_exact_match);
    archive("best_eval_loss", state.best_eval_loss);
    archive("best_step", at_least(0, state.best_step));
    archive("evaluations_without_gain", at_least(0, state.evaluations_without_gain));
    archive.unless("rungs", state.rungs, no_entries);
    archive.unless("promoted", at_least(0, state.promoted), 0);
    archive.unless("reason", state.reason, no_entries);
    archive.unless("file", at_least(0, state.file), 0);
    archive.unless("file_batches", at_least(0, state.file_batches), 0);
    if constexpr (Archive::reads) {
        state.losses = {};
        for (const double loss : losses) state.losses.add(loss);
        for (double& value : state.rungs) {  // JSON has no infinity
            if (std::isnan(value)) value = std::numeric_limits<double>::infinity();
        }
    }
}

/// Status of an adapter that has ended and has not failed. It is exported if it has taken a step.
inline bool is_exportable(AdapterStatus status) {
    return status == AdapterStatus::done || status == AdapterStatus::stopped_early ||
           status == AdapterStatus::stopped || status == AdapterStatus::pruned;
}

/// Status of an adapter that trains on, or may.
inline bool is_unfinished(AdapterStatus status) {
    return status == AdapterStatus::running || status == AdapterStatus::waiting ||
           status == AdapterStatus::parked;
}

/// Status of an unfinished adapter that is not parked at a rung.
inline bool may_train(AdapterStatus status) {
    return is_unfinished(status) && status != AdapterStatus::parked;
}

/// State of an adapter that has not begun.
inline AdapterState not_begun() {
    AdapterState state;
    state.status = AdapterStatus::waiting;
    return state;
}

/// True for a trial that was evaluated at a rung and has no decision yet. It waits, or trains on.
inline bool is_unjudged(const AdapterState& state) {
    return is_unfinished(state.status) &&
           state.rungs.size() > static_cast<std::size_t>(state.promoted);
}

/// True for a trial that has ended. The run directory has its results; no checkpoint keeps it.
inline bool is_ended_trial(const AdapterJob& adapter, const AdapterState& state) {
    return adapter.trial && !is_unfinished(state.status);
}

/// True if the adapter has neither trained nor been evaluated.
inline bool is_untouched(const AdapterState& adapter) {
    return adapter.steps == 0 && adapter.first_eval_loss < 0;
}

/// Text of the file DONE of an exported adapter: "12 steps, stopped early: ...".
std::string done_text(const EvalJob& eval, const AdapterState& adapter);

/// Which adapters a deployment was found for. Both lists ascend, and are empty if the job gives the
/// deployment.
struct DeploymentRecord {
    std::vector<AdapterId> made_for{};  ///< adapters whose samples it holds; empty = all
    /// Unfinished adapters at the last comparison with others (plan/deployments/redeploy.h).
    std::vector<AdapterId> judged_for{};
};

/// Progress of the whole run: what a checkpoint keeps besides tensors.
struct RunState {
    std::int32_t round = 0;
    double elapsed_seconds = 0.0;
    std::vector<AdapterState> adapters;  ///< per AdapterId
    DeploymentRecord deployment{};
};

/// Unfinished adapters, ascending.
std::vector<AdapterId> unfinished_in(const RunState& state);

/// Consecutive steps with non-finite gradients after which an adapter fails.
inline constexpr std::int32_t bad_steps_allowed = 5;

/// Notes an optimizer step: steps taken by now, the step's loss, and whether its gradient was
/// finite. The count of bad steps never falls once it is too high, since the decision must not
/// depend on where windows end.
void take_step(std::int32_t steps, double loss, bool finite, AdapterState& adapter);

/// Notes an evaluation: its loss, and the share of exact samples.
void take_evaluation(double loss, double exact_match, AdapterState& adapter);

/// Why an adapter of `total_steps` steps fails; "" = it does not.
std::string failure_reason(const AdapterState& adapter, std::int32_t total_steps);

/// The contents of state.json.
std::string to_json(const RunState& state, const Job& job);
/// The state in such a text. Adapters of the job that are not in it were added later: they wait at
/// step 0.
RunState run_state_from_json(const std::string& text, const Job& job, const std::string& where);

/// Notes an evaluation during training (adapter.last_eval_loss, after `step` steps). True if it is
/// the best so far. Counts evaluations without improvement as Hugging Face's EarlyStoppingCallback:
/// an improvement is a loss more than early_stopping_threshold below the best. A loss that is not
/// finite is no improvement.
bool note_evaluation(const EvalJob& eval, std::int32_t step, AdapterState& adapter);

/// Why the adapter stops early; "" = it does not.
std::string early_stop_reason(const EvalJob& eval, const AdapterState& adapter);

}  // namespace loratrain
