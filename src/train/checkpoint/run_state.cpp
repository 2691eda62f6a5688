#include "train/checkpoint/run_state.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "base/error.h"
#include "io/json_text.h"
#include "train/early_stopping.h"

namespace loratrain {

namespace {

AdapterStatus status_from_name(const std::string& name) {
    for (const AdapterStatus status :
         {AdapterStatus::running, AdapterStatus::waiting, AdapterStatus::done,
          AdapterStatus::stopped_early, AdapterStatus::stopped, AdapterStatus::failed,
          AdapterStatus::parked, AdapterStatus::pruned}) {
        if (name == status_name(status)) return status;
    }
    throw JsonRefusal(cat("status '", name, "' is not known"));
}

/// JSON writes a number that is not finite as null.
double number(const OrderedJson& entry, const char* key) {
    const OrderedJson& value = entry.at(key);
    return value.is_null() ? std::numeric_limits<double>::quiet_NaN() : value.get<double>();
}

/// Checkpoints of before have the last one alone.
LastMean losses_of(const OrderedJson& entry, const AdapterState& adapter) {
    LastMean losses;
    if (!entry.contains("losses")) {
        if (adapter.steps > 0) losses.add(adapter.last_loss);
        return losses;
    }
    for (const OrderedJson& value : entry.at("losses")) {
        losses.add(value.is_null() ? std::numeric_limits<double>::quiet_NaN()
                                   : value.get<double>());
    }
    return losses;
}

/// Only where there is anything to keep.
OrderedJson search_json(const AdapterState& a) {
    OrderedJson json = OrderedJson::object();
    if (!a.rungs.empty()) json["rungs"] = a.rungs;
    if (a.promoted > 0) json["promoted"] = a.promoted;
    if (!a.reason.empty()) json["reason"] = a.reason;
    return json;
}

OrderedJson json_of(const AdapterState& a, const AdapterJob& adapter) {
    OrderedJson json = {{"steps", a.steps},
                        {"status", status_name(a.status)},
                        {"bad_steps_in_row", a.bad_steps_in_row},
                        {"seed", adapter.seed},
                        {"last_loss", a.last_loss},
                        {"losses", a.losses.values()},
                        {"first_eval_loss", a.first_eval_loss},
                        {"last_eval_loss", a.last_eval_loss},
                        {"first_exact_match", a.first_exact_match},
                        {"last_exact_match", a.last_exact_match},
                        {"best_eval_loss", a.best_eval_loss},
                        {"best_step", a.best_step},
                        {"evaluations_without_gain", a.evaluations_without_gain}};
    json.update(search_json(a));
    return json;
}

void read_search(const OrderedJson& entry, AdapterState& a) {
    if (entry.contains("rungs")) {
        for (const OrderedJson& value : entry.at("rungs")) {
            a.rungs.push_back(value.is_null() ? std::numeric_limits<double>::infinity()
                                              : value.get<double>());
        }
    }
    if (entry.contains("promoted")) a.promoted = whole_number(entry, "promoted");
    if (entry.contains("reason")) a.reason = entry.at("reason").get<std::string>();
}

AdapterState adapter_state(const OrderedJson& entry) {
    AdapterState a;
    read_search(entry, a);
    a.steps = whole_number(entry, "steps");
    a.bad_steps_in_row = whole_number(entry, "bad_steps_in_row");
    a.status = status_from_name(entry.at("status").get<std::string>());
    a.last_loss = number(entry, "last_loss");
    a.losses = losses_of(entry, a);
    a.first_eval_loss = number(entry, "first_eval_loss");
    a.last_eval_loss = number(entry, "last_eval_loss");
    a.first_exact_match = number(entry, "first_exact_match");
    a.last_exact_match = number(entry, "last_exact_match");
    if (!entry.contains("best_step")) return a;  // of a version before 0.2
    a.best_eval_loss = number(entry, "best_eval_loss");
    a.best_step = whole_number(entry, "best_step");
    a.evaluations_without_gain = whole_number(entry, "evaluations_without_gain");
    return a;
}

OrderedJson names_of(const std::vector<AdapterId>& adapters, const Job& job) {
    OrderedJson names = OrderedJson::array();
    for (const AdapterId adapter : adapters) names.push_back(job.adapter(adapter).name);
    return names;
}

/// Ascending.
std::vector<AdapterId> adapters_named(const OrderedJson& names, const Job& job) {
    std::vector<AdapterId> adapters;
    for (std::size_t a = 0; a < job.adapters.size(); ++a) {
        const bool named = std::any_of(names.begin(), names.end(), [&](const OrderedJson& name) {
            return name.get<std::string>() == job.adapters[a].name;
        });
        if (named) adapters.push_back(static_cast<AdapterId>(a));
    }
    return adapters;
}

DeploymentRecord deployment_record(const OrderedJson& json, const Job& job) {
    if (!json.contains("deployment")) return {};
    const OrderedJson& entry = json.at("deployment");
    return {adapters_named(entry.at("made_for"), job), adapters_named(entry.at("judged_for"), job)};
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
        case AdapterStatus::parked:
            return "PARKED";
        case AdapterStatus::pruned:
            return "PRUNED";
    }
    return "";
}

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

std::string to_json(const AdapterState& state, const AdapterJob& adapter) {
    return dump_json(json_of(state, adapter));
}

AdapterState adapter_state_from_json(const std::string& text) {
    return adapter_state(parse_ordered_json(text));
}

std::string to_json(const RunState& state, const Job& job) {
    OrderedJson json;
    json["round"] = state.round;
    json["elapsed_seconds"] = state.elapsed_seconds;
    OrderedJson& adapters = json["adapters"] = OrderedJson::object();
    for (std::size_t i = 0; i < state.adapters.size(); ++i) {
        adapters[job.adapters[i].name] = json_of(state.adapters[i], job.adapters[i]);
    }
    if (!state.deployment.judged_for.empty()) {
        json["deployment"] = {{"made_for", names_of(state.deployment.made_for, job)},
                              {"judged_for", names_of(state.deployment.judged_for, job)}};
    }
    return dump_json(json, 2) + "\n";
}

RunState run_state_from_json(const std::string& text, const Job& job, const std::string& where) {
    const auto damaged = [&](const std::string& why) {
        return InputError(where, "cannot be read as the state of this job: " + why,
                          "delete this checkpoint directory to continue from the one before it");
    };
    try {
        const OrderedJson json = parse_ordered_json(text);
        RunState state;
        state.round = whole_number(json, "round");
        state.elapsed_seconds = json.at("elapsed_seconds").get<double>();
        for (const AdapterJob& adapter : job.adapters) {
            const OrderedJson& entries = json.at("adapters");
            AdapterState& a = state.adapters.emplace_back(not_begun());
            if (entries.contains(adapter.name)) a = adapter_state(entries.at(adapter.name));
            const std::string problem = inconsistency(a, state.round);
            if (!problem.empty()) throw damaged(cat("adapter ", adapter.name, " ", problem));
        }
        state.deployment = deployment_record(json, job);
        return state;
    } catch (const OrderedJson::exception& error) {
        throw damaged(json_reason(error));
    }
}

}  // namespace loratrain
