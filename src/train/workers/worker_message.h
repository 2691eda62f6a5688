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

/// A line of an adapter's metrics.jsonl.
struct MetricsLine {
    AdapterId adapter{};
    std::string text;
};

/// An adapter that a worker is to give back, so that another goes on with it, or has given back.
struct ReturnedAdapter {
    int worker = 0;
    AdapterId adapter{};
    std::string checkpoint{};  ///< in a report: directory with its file; "" = it has not begun
};

/// What the leader of a worker tells the dispatcher (dispatcher.h) of its adapters.
struct WorkerReport {
    int worker = 0;
    std::vector<AdapterUpdate> states;  ///< as they are now
    std::vector<AdapterId> at_rung;     ///< those that have been evaluated at a rung
    std::vector<MetricsLine> metrics;   ///< that have been written
    std::int64_t tokens = 0;            ///< trained since the report before
    std::int32_t round = 0;             ///< the worker's own
    std::optional<int> places;          ///< adapters that it has room for, one to wait among them
    std::vector<AdapterId> saved;       ///< unfinished ones that its checkpoint holds now
    std::vector<AdapterId> saved_ends;  ///< ended ones that its checkpoint holds now
    double saving_seconds = 0.0;        ///< that this checkpoint took
    std::vector<ReturnedAdapter> returned;  ///< it has them no more
    std::vector<std::string> log;           ///< lines for the run's log
    std::optional<std::string> stopped;     ///< it has saved and trains no more: why

    bool empty() const;
};

/// An adapter that a worker is to train from now on.
struct GivenAdapter {
    int worker = 0;
    AdapterId adapter{};
    std::string checkpoint;  ///< directory with its file; "" = it has not begun
};

/// What the dispatcher tells all workers, everyone the same in the same order.
struct Decisions {
    std::vector<InboxFile> additions;  ///< the run gets these adapters, before what follows
    std::vector<AdapterUpdate>
        updates;  ///< adapters as the dispatcher knows them, before what follows
    std::vector<GivenAdapter> given;
    std::vector<ReturnedAdapter> returned;  ///< to be given back, unless they end before
    std::vector<AdapterId> ended;           ///< by order of people: whoever has them stops them
    double elapsed_seconds = -1.0;          ///< of training so far, at the start; -1 = not known
    std::int32_t round = 0;                 ///< workers count on from here, at the start
    bool budget_spent = false;              ///< of the sweep: trials end as they are
    std::string stop;                       ///< why all save and train no more; "" = they do not
    std::optional<ExitCode> over;           ///< the run has ended

    bool empty() const;
};

/// Between leaders of workers (base/wire.h). Reading what was written gives the same value; any
/// other bytes are an Error.
std::string to_bytes(const WorkerReport& report);
WorkerReport worker_report_from_bytes(std::string_view bytes);
std::string to_bytes(const Decisions& decisions);
Decisions decisions_from_bytes(std::string_view bytes);

}  // namespace loratrain
