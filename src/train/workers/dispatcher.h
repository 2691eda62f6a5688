#pragma once

#include <chrono>
#include <deque>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "comm/text_channel.h"
#include "train/checkpoint/worker_checkpoints.h"
#include "train/orders/inbox.h"
#include "train/run_ledger.h"
#include "train/workers/adapter_queues.h"

namespace loratrain {

/// Leads a run, on its rank 0: knows the state of all adapters, judges trials, takes orders of
/// people, watches the budget of a sweep, decides when the run is over, and writes the records of
/// the whole run (status.json, results.csv, event files, sweep/). Its workers train and report.
///
/// A joint run has one worker, on this rank, which owns all adapters. Both share one ledger, so
/// reports and decisions carry events only. Each is a direct call at a point that the worker
/// chooses: decisions do not depend on timing.
///
/// Several workers get decisions over a channel. Worker 0 is on this rank too. The dispatcher hands
/// adapters out one by one (adapter_queues.h); a worker asks for one adapter ahead. Neither side
/// waits for the other, except a worker that has nothing to train. An adapter that has ended is
/// recorded (SweepRecords) and never given out again.
class Dispatcher {
  public:
    struct Parts {
        const Job& job;
        const Plan& plan;  ///< of one worker; all workers are alike
        const std::vector<DatasetInfo>& datasets;
        TextChannel* leaders = nullptr;  ///< rank 0 of each worker, this rank the root; null: joint
        int workers = 1;
        int ranks = 1;           ///< of all workers together
        MetShapes met_shapes{};  ///< shapes that a worker's stages have met
    };
    /// `ledger`: the worker's in a joint run, else the dispatcher's own. It and everything in
    /// `parts` outlive the dispatcher.
    Dispatcher(const Parts& parts, RunLedger& ledger);

    /// Several workers: continues from former starts, and logs that.
    void begin(const FormerRun& former);
    /// A joint run: adds what former starts have recorded since the ledger's checkpoint.
    void recall();
    /// A joint run, after recall(): starts to serve.
    void begin();

    /// Takes a report of a worker.
    void take(const WorkerReport& report);
    /// Takes reports of all other ranks, and posts decisions. Call it often.
    void serve();
    /// Takes orders of people, and checks the budget. With several workers serve() does so, too.
    void look_for_orders();
    /// `at_rung` were evaluated at rungs: judges them, and others by their values (TrialSearch).
    void judge(const std::vector<AdapterId>& at_rung);
    /// The next decisions for the worker on this rank.
    std::optional<Decisions> next_of_own();

    // An inbox file adds adapters: the worker on this rank checks it first and then accepts or
    // refuses it (train/services/growth.h). Once that worker has taken it, all others do.
    void accept(const InboxFile& file) { inbox_->accept(file); }
    void refuse(const InboxFile& file, const std::string& why);
    void added(const InboxFile& file);
    /// The worker has not checked the file to the end.
    void look_again(const InboxFile& file) { adding_.erase(file.path); }

    /// The state of all adapters.
    RunState state() const { return ledger_.run_state(); }
    /// Why all workers have stopped; "" = they have not.
    const std::string& stop_reason() const { return stop_reason_; }
    /// Predicted and measured seconds of training the queues.
    std::string makespan_text() const;
    /// Records why training has thrown on this rank.
    void record_failure(const std::string& why) { ledger_.journal.end("failed", why); }

  private:
    /// What workers know of an adapter, as far as it seldom changes.
    struct Known {
        bool pruned = false;
        bool ended = false;
        std::size_t rungs = 0;
        int promoted = 0;
        friend bool operator==(const Known&, const Known&) = default;
    };

    bool is_joint() const { return parts_.leaders == nullptr; }
    bool is_ended(AdapterId adapter) const;
    Known known(AdapterId adapter) const;
    void log_start(const FormerRun& former);

    // Reports of workers.
    void take_state(const AdapterUpdate& update, bool at_rung);
    void note_saved(const WorkerReport& report);
    void note_changes();
    void note_durable(AdapterId adapter);
    void take_returned(const ReturnedAdapter& returned);

    // Orders of people, and the end.
    void take_orders();
    void stop_adapter(const std::string& name);
    void end_free(AdapterId adapter, const std::string& why);
    void look_at_budget();
    void give();
    bool all_ended() const;
    bool all_stopped() const;
    void look_at_end();
    void end(ExitCode code);
    void post();

    Parts parts_;
    RunLedger& ledger_;
    AdapterQueues queues_;
    std::optional<Inbox> inbox_;  ///< once it serves
    std::vector<Known> known_;    ///< per adapter
    /// Per adapter: steps that checkpoints of former starts and of moves need not keep any more.
    std::vector<std::int32_t> saved_;
    std::set<int> stopped_workers_;
    std::set<std::string> adding_;    ///< inbox files that the worker on this rank checks
    std::set<std::string> stopping_;  ///< adapters whose stop files are not removed yet
    FormerCheckpoints former_{{}};
    Decisions decisions_;               ///< not posted yet
    std::vector<InboxFile> new_files_;  ///< for the worker on this rank, after decisions_
    std::deque<Decisions> own_;
    std::string stop_reason_;
    bool budget_reported_ = false;
    bool over_ = false;
    std::optional<std::chrono::steady_clock::time_point> given_;  ///< the first adapter was given
    std::optional<std::chrono::steady_clock::time_point> idle_;   ///< all adapters had ended
    double trained_seconds_ = 0.0;                                ///< in this start
    std::chrono::steady_clock::time_point looked_;                ///< last look for orders
};

}  // namespace loratrain
