#include "train/workers/worker_message.h"

#include "io/json_text.h"

namespace loratrain {

namespace {

AdapterId adapter_of(const OrderedJson& value) {
    return AdapterId{value.get<std::int32_t>()};
}

OrderedJson ids_json(const std::vector<AdapterId>& adapters) {
    OrderedJson list = OrderedJson::array();
    for (const AdapterId a : adapters) list.push_back(number(a));
    return list;
}

std::vector<AdapterId> read_ids(const OrderedJson& list) {
    std::vector<AdapterId> adapters;
    for (const OrderedJson& value : list) adapters.push_back(adapter_of(value));
    return adapters;
}

OrderedJson updates_json(const std::vector<AdapterUpdate>& updates, const Job& job) {
    OrderedJson list = OrderedJson::array();
    for (const auto& [adapter, state] : updates) {
        list.push_back({number(adapter), to_json(state, job.adapter(adapter))});
    }
    return list;
}

std::vector<AdapterUpdate> read_updates(const OrderedJson& list) {
    std::vector<AdapterUpdate> updates;
    for (const OrderedJson& entry : list) {
        updates.push_back(
            {adapter_of(entry.at(0)), adapter_state_from_json(entry.at(1).get<std::string>())});
    }
    return updates;
}

OrderedJson returned_json(const std::vector<ReturnedAdapter>& returned) {
    OrderedJson list = OrderedJson::array();
    for (const ReturnedAdapter& r : returned) {
        list.push_back({r.worker, number(r.adapter), r.checkpoint});
    }
    return list;
}

std::vector<ReturnedAdapter> read_returned(const OrderedJson& list) {
    std::vector<ReturnedAdapter> returned;
    for (const OrderedJson& entry : list) {
        returned.push_back(
            {entry.at(0).get<int>(), adapter_of(entry.at(1)), entry.at(2).get<std::string>()});
    }
    return returned;
}

template <class Read>
auto read_message(const std::string& text, const Read& read) {
    try {
        return read(parse_ordered_json(text));
    } catch (const OrderedJson::exception& error) {
        throw Error(cat("a message between workers cannot be read: ", json_reason(error)));
    }
}

}  // namespace

bool WorkerReport::empty() const {
    return states.empty() && at_rung.empty() && metrics.empty() && tokens == 0 && !places &&
           saved.empty() && saved_ends.empty() && returned.empty() && log.empty() && !stopped;
}

bool Decisions::empty() const {
    return additions.empty() && updates.empty() && given.empty() && returned.empty() &&
           ended.empty() && elapsed_seconds < 0 && !budget_spent && stop.empty() && !over;
}

std::string to_text(const WorkerReport& report, const Job& job) {
    OrderedJson json;
    json["worker"] = report.worker;
    json["states"] = updates_json(report.states, job);
    json["at_rung"] = ids_json(report.at_rung);
    OrderedJson& metrics = json["metrics"] = OrderedJson::array();
    for (const auto& [adapter, text] : report.metrics) metrics.push_back({number(adapter), text});
    json["tokens"] = report.tokens;
    json["round"] = report.round;
    if (report.places) json["places"] = *report.places;
    json["saved"] = ids_json(report.saved);
    json["saved_ends"] = ids_json(report.saved_ends);
    json["saving_seconds"] = report.saving_seconds;
    json["returned"] = returned_json(report.returned);
    json["log"] = report.log;
    if (report.stopped) json["stopped"] = *report.stopped;
    return dump_json(json);
}

WorkerReport worker_report_from_text(const std::string& text) {
    return read_message(text, [](const OrderedJson& json) {
        WorkerReport report;
        report.worker = json.at("worker").get<int>();
        report.states = read_updates(json.at("states"));
        report.at_rung = read_ids(json.at("at_rung"));
        for (const OrderedJson& line : json.at("metrics")) {
            report.metrics.push_back({adapter_of(line.at(0)), line.at(1).get<std::string>()});
        }
        report.tokens = json.at("tokens").get<std::int64_t>();
        report.round = json.at("round").get<std::int32_t>();
        if (json.contains("places")) report.places = json.at("places").get<int>();
        report.saved = read_ids(json.at("saved"));
        report.saved_ends = read_ids(json.at("saved_ends"));
        report.saving_seconds = json.at("saving_seconds").get<double>();
        report.returned = read_returned(json.at("returned"));
        report.log = json.at("log").get<std::vector<std::string>>();
        if (json.contains("stopped")) report.stopped = json.at("stopped").get<std::string>();
        return report;
    });
}

std::string to_text(const Decisions& decisions, const Job& job) {
    OrderedJson json;
    OrderedJson& additions = json["additions"] = OrderedJson::array();
    for (const InboxFile& file : decisions.additions) additions.push_back({file.path, file.text});
    json["updates"] = updates_json(decisions.updates, job);
    OrderedJson& given = json["given"] = OrderedJson::array();
    for (const GivenAdapter& g : decisions.given) {
        given.push_back({g.worker, number(g.adapter), g.checkpoint});
    }
    json["returned"] = returned_json(decisions.returned);
    json["ended"] = ids_json(decisions.ended);
    json["elapsed_seconds"] = decisions.elapsed_seconds;
    json["round"] = decisions.round;
    json["budget_spent"] = decisions.budget_spent;
    json["stop"] = decisions.stop;
    if (decisions.over) json["over"] = static_cast<int>(*decisions.over);
    return dump_json(json);
}

Decisions decisions_from_text(const std::string& text) {
    return read_message(text, [](const OrderedJson& json) {
        Decisions decisions;
        for (const OrderedJson& file : json.at("additions")) {
            decisions.additions.push_back(
                {file.at(0).get<std::string>(), file.at(1).get<std::string>()});
        }
        decisions.updates = read_updates(json.at("updates"));
        for (const OrderedJson& entry : json.at("given")) {
            decisions.given.push_back(
                {entry.at(0).get<int>(), adapter_of(entry.at(1)), entry.at(2).get<std::string>()});
        }
        decisions.returned = read_returned(json.at("returned"));
        decisions.ended = read_ids(json.at("ended"));
        decisions.elapsed_seconds = json.at("elapsed_seconds").get<double>();
        decisions.round = json.at("round").get<std::int32_t>();
        decisions.budget_spent = json.at("budget_spent").get<bool>();
        decisions.stop = json.at("stop").get<std::string>();
        if (json.contains("over"))
            decisions.over = static_cast<ExitCode>(json.at("over").get<int>());
        return decisions;
    });
}

}  // namespace loratrain
