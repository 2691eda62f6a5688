#include "io/run_files/status_file.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "base/error.h"
#include "base/system.h"
#include "config/adapter_name.h"
#include "io/json_text.h"

namespace loratrain {

namespace {

constexpr const char* delete_hint = "delete the file; a running job writes it anew";

OrderedJson json_number(const std::optional<double>& value) {
    return value && std::isfinite(*value) ? OrderedJson(*value) : OrderedJson(nullptr);
}

std::optional<double> optional_number(const OrderedJson& object, const char* key) {
    const auto found = object.find(key);
    if (found == object.end() || !found->is_number()) return std::nullopt;
    return found->get<double>();
}

AdapterProgress adapter_progress(const std::string& name, const OrderedJson& json) {
    AdapterProgress adapter;
    adapter.name = name;
    adapter.status = json.at("status").get<std::string>();
    adapter.step = whole_number(json, "step");
    adapter.total_steps = whole_number(json, "total_steps");
    adapter.loss = optional_number(json, "loss");
    adapter.eval_loss = optional_number(json, "eval_loss");
    adapter.eval_exact_match = optional_number(json, "eval_exact_match");
    if (json.contains("priority")) {  // absent from files of earlier versions
        adapter.priority = whole_number(json, "priority", std::numeric_limits<std::int32_t>::min());
    }
    return adapter;
}

}  // namespace

std::string to_json(const RunStatus& status) {
    OrderedJson json;
    json["state"] = status.state;
    json["reason"] = status.reason;
    json["round"] = status.round;
    json["rounds"] = status.rounds;
    json["elapsed_seconds"] = json_number(status.elapsed_seconds);
    json["tokens_per_second"] = json_number(status.tokens_per_second);
    json["seconds_left"] = json_number(status.seconds_left);
    json["seconds_per_round"] = json_number(status.seconds_per_round);
    json["host"] = status.host;
    json["pid"] = status.pid;
    json["ranks"] = status.ranks;
    json["updated"] = status.updated;
    json["updated_text"] = time_text(status.updated);
    json["accuracy"] = status.accuracy;
    OrderedJson& adapters = json["adapters"] = OrderedJson::object();
    for (const AdapterProgress& adapter : status.adapters) {
        adapters[adapter.name] = {{"status", adapter.status},
                                  {"step", adapter.step},
                                  {"total_steps", adapter.total_steps},
                                  {"loss", json_number(adapter.loss)},
                                  {"eval_loss", json_number(adapter.eval_loss)},
                                  {"eval_exact_match", json_number(adapter.eval_exact_match)},
                                  {"priority", adapter.priority}};
    }
    return dump_json(json, 2) + "\n";
}

RunStatus run_status_from_json(const std::string& text, const std::string& where) {
    try {
        const OrderedJson json = parse_ordered_json(text);
        RunStatus status;
        status.state = json.at("state").get<std::string>();
        status.reason = json.at("reason").get<std::string>();
        status.round = whole_number(json, "round");
        status.rounds = whole_number(json, "rounds");
        status.elapsed_seconds = optional_number(json, "elapsed_seconds").value_or(0.0);
        status.tokens_per_second = optional_number(json, "tokens_per_second").value_or(0.0);
        status.seconds_left = optional_number(json, "seconds_left");
        status.seconds_per_round = optional_number(json, "seconds_per_round").value_or(0.0);
        status.host = json.at("host").get<std::string>();
        status.pid = whole_number(json, "pid");
        status.ranks = whole_number(json, "ranks", 1);
        status.updated = json.at("updated").get<double>();
        if (json.contains("accuracy")) {  // absent from files of earlier versions
            status.accuracy = json.at("accuracy").get<std::string>();
        }
        for (const auto& [name, adapter] : json.at("adapters").items()) {
            if (!is_adapter_name(name)) {
                throw InputError(where, cat("'", name, "' cannot be the name of an adapter"),
                                 delete_hint);
            }
            status.adapters.push_back(adapter_progress(name, adapter));
        }
        return status;
    } catch (const OrderedJson::exception& error) {
        throw InputError(where, "cannot be read as the status of a run: " + json_reason(error),
                         delete_hint);
    }
}

std::string status_of_ended(const std::string& status) {
    return status == "RUNNING" ? "INTERRUPTED" : status;
}

std::string accuracy_name(const std::vector<AdapterJob>& adapters) {
    const auto of_pairs =
        std::count_if(adapters.begin(), adapters.end(),
                      [](const AdapterJob& adapter) { return adapter.loss.is_of_pairs(); });
    if (of_pairs == 0) return "exact match";
    return of_pairs == std::ssize(adapters) ? "reward accuracy" : "accuracy";
}

std::string time_text(double unix_seconds) {
    return local_time(unix_seconds, "%Y-%m-%d %H:%M:%S");
}

}  // namespace loratrain
