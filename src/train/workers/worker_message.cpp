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
    archive.list(returned.worker, returned.adapter, returned.checkpoint);
}

template <class Archive>
void fields(Archive& archive, GivenAdapter& given) {
    archive.list(given.worker, given.adapter, given.checkpoint);
}

template <class Archive>
void fields(Archive& archive, WorkerReport& report) {
    archive.list(report.worker, report.states, report.at_rung, report.metrics, report.tokens,
                 report.round, report.places, report.saved, report.saved_ends,
                 report.saving_seconds, report.returned, report.log, report.stopped);
}

template <class Archive>
void fields(Archive& archive, Decisions& decisions) {
    archive.list(decisions.additions, decisions.updates, decisions.given, decisions.returned,
                 decisions.ended, decisions.elapsed_seconds, decisions.round,
                 decisions.budget_spent, decisions.stop, decisions.over);
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
