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

/// An adapter's progress. It is the root's that goes on; other ranks hold what was loaded.
struct AdapterState {
    std::int32_t steps = 0;             ///< optimizer steps taken (skipped ones included)
    std::int32_t bad_steps_in_row = 0;  ///< consecutive steps with non-finite gradients
    AdapterStatus status = AdapterStatus::running;
    double last_loss = 0.0;
    double first_eval_loss = -1.0;  ///< -1 = not evaluated
    double last_eval_loss = -1.0;
    double first_exact_match = -1.0;  ///< of pairs: the reward accuracy
    double last_exact_match = -1.0;
    double best_eval_loss = -1.0;  ///< of the evaluations during training; -1 = none
    std::int32_t best_step = 0;    ///< its step
    std::int32_t evaluations_without_gain = 0;
    LastMean losses{};  ///< of steps
    // Of a trial, where its sweep has rungs (plan/rungs.h).
    std::vector<double> rungs{};  ///< values at those it has come to; lower is better
    int promoted = 0;             ///< rungs that it was let past
    std::string reason{};         ///< why it ended before its last step; may be ""
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
    if constexpr (Archive::reads) {
        state.losses = {};
        for (const double loss : losses) state.losses.add(loss);
        for (double& value : state.rungs) {  // JSON has no infinity
            if (std::isnan(value)) value = std::numeric_limits<double>::infinity();
        }
    }
}

/// Status of an adapter that is to be exported, provided that it has taken a step.
inline bool is_complete(AdapterStatus status) {
    return status == AdapterStatus::done || status == AdapterStatus::stopped_early ||
           status == AdapterStatus::stopped || status == AdapterStatus::pruned;
}

/// Status of an adapter that is to train further, or may be.
inline bool is_unfinished(AdapterStatus status) {
    return status == AdapterStatus::running || status == AdapterStatus::waiting ||
           status == AdapterStatus::parked;
}

/// The same of one that does not wait at a rung.
inline bool may_train(AdapterStatus status) {
    return is_unfinished(status) && status != AdapterStatus::parked;
}

/// As if it had not begun.
inline AdapterState not_begun() {
    AdapterState state;
    state.status = AdapterStatus::waiting;
    return state;
}

/// A trial that has been evaluated at a rung, and waits there for its decision or trains on
/// meanwhile.
inline bool is_unjudged(const AdapterState& state) {
    return is_unfinished(state.status) &&
           state.rungs.size() > static_cast<std::size_t>(state.promoted);
}

/// A trial that has ended: what it came to is in the run directory, no checkpoint keeps it.
inline bool is_ended_trial(const AdapterJob& adapter, const AdapterState& state) {
    return adapter.trial && !is_unfinished(state.status);
}

/// Whether it has neither trained nor been evaluated.
inline bool is_untouched(const AdapterState& adapter) {
    return adapter.steps == 0 && adapter.first_eval_loss < 0;
}

/// What the file DONE of an exported adapter says: "12 steps, stopped early: ...".
std::string done_text(const EvalJob& eval, const AdapterState& adapter);

/// Which adapters a deployment that was found is for; both ascending, empty where it was given.
struct DeploymentRecord {
    std::vector<AdapterId> made_for{};  ///< whose samples it holds; empty = all of the job
    /// Unfinished when it was last compared with what else is found (plan/deployments/redeploy.h).
    std::vector<AdapterId> judged_for{};
};

/// The whole run's progress; what a checkpoint keeps besides tensors.
struct RunState {
    std::int32_t round = 0;
    double elapsed_seconds = 0.0;
    std::vector<AdapterState> adapters;  ///< per AdapterId
    DeploymentRecord deployment{};
};

/// Adapters that are to train further, ascending.
std::vector<AdapterId> unfinished_in(const RunState& state);

/// Consecutive non-finite gradients after which an adapter is given up (FAILED).
inline constexpr std::int32_t bad_steps_allowed = 5;

/// Takes an optimizer step into the adapter's record: how many it has taken now, the step's loss,
/// and whether its gradient was finite. Once there were too many bad steps in a row it stays so:
/// the decision must not depend on where windows end.
void take_step(std::int32_t steps, double loss, bool finite, AdapterState& adapter);

/// Takes an evaluation into the adapter's record: mean loss of the targets and share of samples
/// that are exact.
void take_evaluation(double loss, double exact_match, AdapterState& adapter);

/// Why an adapter of so many steps in all must be given up, "" = it need not.
std::string failure_reason(const AdapterState& adapter, std::int32_t total_steps);

/// The contents of state.json.
std::string to_json(const RunState& state, const Job& job);
/// Adapters of the job that the text does not know were added after it: they wait, at step 0.
RunState run_state_from_json(const std::string& text, const Job& job, const std::string& where);

/// Takes an evaluation during training (after `step` steps, adapter.last_eval_loss) into the
/// adapter's record; true when it is the best so far. Evaluations without improvement are counted
/// as Hugging Face's EarlyStoppingCallback does: an improvement is a decrease by more than
/// early_stopping_threshold below the best loss. A loss that is not finite is none.
bool note_evaluation(const EvalJob& eval, std::int32_t step, AdapterState& adapter);

/// Why the adapter is to be ended early, "" = it is not.
std::string early_stop_reason(const EvalJob& eval, const AdapterState& adapter);

}  // namespace loratrain
