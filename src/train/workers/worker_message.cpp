#include "train/workers/worker_message.h"

#include "base/wire.h"

namespace loratrain {

template <class Archive>
void fields(Archive& archive, AdapterUpdate& update) {
    archive("adapter", update.adapter);
    archive("state", update.state);
}

template <class Archive>
void fields(Archive& archive, MetricsLine& line) {
    archive("adapter", line.adapter);
    archive("text", line.text);
}

template <class Archive>
void fields(Archive& archive, ReturnedAdapter& returned) {
    archive("worker", returned.worker);
    archive("adapter", returned.adapter);
    archive("checkpoint", returned.checkpoint);
}

template <class Archive>
void fields(Archive& archive, GivenAdapter& given) {
    archive("worker", given.worker);
    archive("adapter", given.adapter);
    archive("checkpoint", given.checkpoint);
}

template <class Archive>
void fields(Archive& archive, WorkerReport& report) {
    archive("worker", report.worker);
    archive("states", report.states);
    archive("at_rung", report.at_rung);
    archive("metrics", report.metrics);
    archive("tokens", report.tokens);
    archive("round", report.round);
    archive("places", report.places);
    archive("saved", report.saved);
    archive("saved_ends", report.saved_ends);
    archive("saving_seconds", report.saving_seconds);
    archive("returned", report.returned);
    archive("log", report.log);
    archive("stopped", report.stopped);
}

template <class Archive>
void fields(Archive& archive, Decisions& decisions) {
    archive("additions", decisions.additions);
    archive("updates", decisions.updates);
    archive("given", decisions.given);
    archive("returned", decisions.returned);
    archive("ended", decisions.ended);
    archive("elapsed_seconds", decisions.elapsed_seconds);
    archive("round", decisions.round);
    archive("budget_spent", decisions.budget_spent);
    archive("stop", decisions.stop);
    archive("over", decisions.over);
}

bool WorkerReport::empty() const {
    return states.empty() && at_rung.empty() && metrics.empty() && tokens == 0 && !places &&
           saved.empty() && saved_ends.empty() && returned.empty() && log.empty() && !stopped;
}

bool Decisions::empty() const {
    return additions.empty() && updates.empty() && given.empty() && returned.empty() &&
           ended.empty() && elapsed_seconds < 0 && !budget_spent && stop.empty() && !over;
}

std::string to_bytes(const WorkerReport& report) {
    return to_wire(report);
}

WorkerReport worker_report_from_bytes(std::string_view bytes) {
    return from_wire<WorkerReport>(bytes, "a report of a worker");
}

std::string to_bytes(const Decisions& decisions) {
    return to_wire(decisions);
}

Decisions decisions_from_bytes(std::string_view bytes) {
    return from_wire<Decisions>(bytes, "what the dispatcher has decided");
}

}  // namespace loratrain
