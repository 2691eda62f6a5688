#include "train/checkpoint/run_state.h"

#include <cmath>
#include <limits>

#include "base/error.h"
#include "io/json_text.h"
#include "train/early_stopping.h"

namespace loratrain {

namespace {

AdapterStatus status_from_name(const std::string& name) {
    for (const AdapterStatus status :
         {AdapterStatus::waiting, AdapterStatus::done, AdapterStatus::stopped_early,
          AdapterStatus::stopped, AdapterStatus::failed}) {
        if (name == status_name(status)) return status;
    }
    return AdapterStatus::running;
}

/// JSON writes a number that is not finite as null.
double number(const OrderedJson& entry, const char* key) {
    const OrderedJson& value = entry.at(key);
    return value.is_null() ? std::numeric_limits<double>::quiet_NaN() : value.get<double>();
}

}  // namespace

const char* status_name(AdapterStatus status) {
    switch (status) {
        case AdapterStatus::running:
            return "RUNNING";
        case AdapterStatus::waiting:
            return "WAITING";
        case AdapterStatus::done:
            return "DONE";
        case AdapterStatus::stopped_early:
            return "STOPPED EARLY";
        case AdapterStatus::stopped:
            return "STOPPED";
        case AdapterStatus::failed:
            return "FAILED";
    }
    return "";
}

void take_step(std::int32_t steps, double loss, bool finite, AdapterState& adapter) {
    adapter.steps = steps;
    adapter.last_loss = loss;
    if (!finite) {
        ++adapter.bad_steps_in_row;
    } else if (adapter.bad_steps_in_row < bad_steps_allowed) {
        adapter.bad_steps_in_row = 0;
    }
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
        return cat("gradients were not finite in ", adapter.bad_steps_in_row,
                   " steps in a row, up to step ", adapter.steps);
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
    if (adapter.status == AdapterStatus::stopped) text += ", stopped by the user";
    return text + "\n";
}

std::string to_json(const RunState& state, const Job& job) {
    OrderedJson json;
    json["round"] = state.round;
    json["elapsed_seconds"] = state.elapsed_seconds;
    OrderedJson& adapters = json["adapters"] = OrderedJson::object();
    for (std::size_t i = 0; i < state.adapters.size(); ++i) {
        const AdapterState& a = state.adapters[i];
        adapters[job.adapters[i].name] = {{"steps", a.steps},
                                          {"status", status_name(a.status)},
                                          {"bad_steps_in_row", a.bad_steps_in_row},
                                          {"seed", job.adapters[i].seed},
                                          {"last_loss", a.last_loss},
                                          {"first_eval_loss", a.first_eval_loss},
                                          {"last_eval_loss", a.last_eval_loss},
                                          {"first_exact_match", a.first_exact_match},
                                          {"last_exact_match", a.last_exact_match},
                                          {"best_eval_loss", a.best_eval_loss},
                                          {"best_step", a.best_step},
                                          {"evaluations_without_gain", a.evaluations_without_gain}};
    }
    return dump_json(json, 2) + "\n";
}

RunState run_state_from_json(const std::string& text, const Job& job, const std::string& where) {
    try {
        const OrderedJson json = parse_ordered_json(text);
        RunState state;
        state.round = json.at("round").get<std::int32_t>();
        state.elapsed_seconds = json.at("elapsed_seconds").get<double>();
        for (const AdapterJob& adapter : job.adapters) {
            AdapterState a;
            const OrderedJson& entries = json.at("adapters");
            if (!entries.contains(adapter.name)) {
                a.status = AdapterStatus::waiting;
                state.adapters.push_back(a);
                continue;
            }
            const OrderedJson& entry = entries.at(adapter.name);
            a.steps = entry.at("steps").get<std::int32_t>();
            a.bad_steps_in_row = entry.at("bad_steps_in_row").get<std::int32_t>();
            a.status = status_from_name(entry.at("status").get<std::string>());
            a.last_loss = number(entry, "last_loss");
            a.first_eval_loss = number(entry, "first_eval_loss");
            a.last_eval_loss = number(entry, "last_eval_loss");
            a.first_exact_match = number(entry, "first_exact_match");
            a.last_exact_match = number(entry, "last_exact_match");
            // Absent from checkpoints of versions before 0.2.
            a.best_eval_loss = entry.value("best_eval_loss", a.best_eval_loss);
            a.best_step = entry.value("best_step", a.best_step);
            a.evaluations_without_gain =
                entry.value("evaluations_without_gain", a.evaluations_without_gain);
            state.adapters.push_back(a);
        }
        return state;
    } catch (const OrderedJson::exception& error) {
        throw InputError(where, cat("cannot be read as the state of this job: ", error.what()),
                         "delete this checkpoint directory to continue from the one before it");
    }
}

}  // namespace loratrain
