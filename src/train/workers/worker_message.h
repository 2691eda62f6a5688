#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "train/checkpoint/run_state.h"
#include "train/orders/inbox.h"

namespace loratrain {

struct AdapterUpdate {
    AdapterId adapter{};
    AdapterState state;
};

/// Messages between workers and the dispatcher.

/// A line of an adapter's metrics.jsonl.
struct MetricsLine {
    AdapterId adapter{};
    std::string text;
};

/// An adapter that a worker has to give back for another worker, or has given back.
struct ReturnedAdapter {
    int worker = 0;
    AdapterId adapter{};
    std::string checkpoint{};  ///< in a report: directory of its file; "" = not begun
};

/// Report of a worker to the dispatcher (dispatcher.h).
struct WorkerReport {
    int worker = 0;
    std::vector<AdapterUpdate> states;      ///< of its adapters now
    std::vector<AdapterId> at_rung;         ///< trials that were evaluated at a rung
    std::vector<MetricsLine> metrics;       ///< lines that were written
    std::int64_t tokens = 0;                ///< trained since the last report
    std::int32_t round = 0;                 ///< the worker's own
    std::optional<int> places;              ///< adapters that it has room for, with one that waits
    std::vector<AdapterId> saved;           ///< unfinished adapters in its newest checkpoint
    std::vector<AdapterId> saved_ends;      ///< ended adapters in its newest checkpoint
    double saving_seconds = 0.0;            ///< of that checkpoint
    std::vector<ReturnedAdapter> returned;  ///< given back
    std::vector<std::string> log;           ///< lines for the run's log
    std::optional<std::string> stopped;     ///< it has saved and trains no more: why

    bool empty() const;
};

/// An adapter that a worker trains from now on.
struct GivenAdapter {
    int worker = 0;
    AdapterId adapter{};
    std::string checkpoint;  ///< directory of its file; "" = not begun
};

/// Decisions of the dispatcher, to all workers, the same in the same order. Members are obeyed from
/// the first to the last.
struct Decisions {
    std::vector<InboxFile> additions;    ///< adapters that the run gets
    std::vector<AdapterUpdate> updates;  ///< states as the dispatcher knows them
    std::vector<GivenAdapter> given;
    std::vector<ReturnedAdapter> returned;  ///< to be given back, unless they end before
    std::vector<AdapterId> ended;           ///< stopped by people
    double elapsed_seconds = -1.0;          ///< at the start: trained so far; -1 = not known
    std::int32_t round = 0;                 ///< at the start: workers count on from here
    bool budget_spent = false;              ///< the sweep's: trials end as they are
    std::string stop;                       ///< why all save and train no more; "" = they do not
    std::optional<ExitCode> over;           ///< the run has ended

    bool empty() const;
};

/// The bytes that travel between workers (base/wire.h). Reading them gives the same value; Error
/// for any other bytes.
std::string to_bytes(const WorkerReport& report);
WorkerReport worker_report_from_bytes(std::string_view bytes);
std::string to_bytes(const Decisions& decisions);
Decisions decisions_from_bytes(std::string_view bytes);

}  // namespace loratrain
