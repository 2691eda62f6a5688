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

/// Leads a run, on its rank 0: knows how all adapters are, judges trials, takes orders of people,
/// looks after the budget of a sweep, decides when the run is over, and writes what it leaves as a
/// whole (status.json, results.csv, event files, sweep/). Its workers train and report.
///
/// A joint run has one worker, on this rank. Both share one ledger, so that reports and decisions
/// carry events alone, and each is a direct call at a point that the worker chooses: when anything
/// is decided does not depend on how long anything takes. The worker owns all adapters from the
/// start.
///
/// Several workers hear of decisions over a channel. Worker 0 is on this rank too. The dispatcher
/// hands adapters out one by one (adapter_queues.h): who has room asks for one adapter ahead. It
/// never waits for a worker, nor they for it, unless they have nothing to train. An adapter that
/// has ended is recorded (SweepRecords) and never given out again.
class Dispatcher {
  public:
    struct Parts {
        const Job& job;
        const Plan& plan;  ///< of one worker; they are alike
        const std::vector<DatasetInfo>& datasets;
        TextChannel* leaders = nullptr;  ///< of all workers, this rank the root; null: a joint run
        int workers = 1;
        int ranks = 1;           ///< of all workers together
        MetShapes met_shapes{};  ///< that the stages of a worker have met
    };
    /// `ledger`: in a joint run the worker's, else the dispatcher's own. It and what `parts` refer
    /// to outlive the dispatcher.
    Dispatcher(const Parts& parts, RunLedger& ledger);

    /// Of several workers: goes on with what former starts have left, and says so.
    void begin(const FormerRun& former);
    /// Of a joint run, whose ledger has its checkpoint: what former starts have recorded since.
    void recall();
    /// Of a joint run, behind recall(): from here it serves.
    void begin();

    /// From the worker on this rank.
    void take(const WorkerReport& report);
    /// Hears all others, and posts what has come of it; to be called often.
    void serve();
    /// Orders of people, and the budget. serve() looks for orders now and then, but in a joint run.
    void look_for_orders();
    /// Trials that have been evaluated at rungs are judged, and others by them.
    void judge(const std::vector<AdapterId>& at_rung);
    /// For the worker on this rank.
    std::optional<Decisions> next_of_own();

    // An inbox file adds adapters: the worker on this rank looks at it first, and asks the
    // dispatcher to accept or to refuse it; once it has taken it, all others do.
    void accept(const InboxFile& file) { inbox_->accept(file); }
    void refuse(const InboxFile& file, const std::string& why);
    void added(const InboxFile& file);
    /// It was not looked at to the end.
    void look_again(const InboxFile& file) { adding_.erase(file.path); }

    /// How all adapters are.
    RunState state() const { return ledger_.run_state(); }
    /// Why all have stopped; "" = they have not.
    const std::string& stop_reason() const { return stop_reason_; }
    /// Seconds that training the queues was predicted to take, and has taken.
    std::string makespan_text() const;
    /// Training has thrown on this rank: records why.
    void record_failure(const std::string& why) { ledger_.journal.end("failed", why); }

  private:
    /// What workers know of an adapter that changes seldom.
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
    void recall_ends();
    void log_start(const FormerRun& former);

    // What workers say.
    void take_state(const AdapterUpdate& update, bool at_rung);
    void note_saved(const WorkerReport& report);
    void note_changes();
    void note_durable(AdapterId adapter);
    void take_returned(const ReturnedAdapter& returned);

    // What people want, and the end.
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
    /// Per adapter, steps that no checkpoint of a former start or of a move must keep.
    std::vector<std::int32_t> saved_;
    std::set<int> stopped_workers_;
    std::set<std::string> adding_;    ///< inbox files that the worker on this rank looks at
    std::set<std::string> stopping_;  ///< adapters whose stop files are not removed yet
    FormerCheckpoints former_{{}};
    Decisions decisions_;               ///< to be posted
    std::vector<InboxFile> new_files_;  ///< for the worker on this rank, behind these
    std::deque<Decisions> own_;
    std::string stop_reason_;
    bool budget_reported_ = false;
    bool over_ = false;
    std::optional<std::chrono::steady_clock::time_point> given_;  ///< first
    std::optional<std::chrono::steady_clock::time_point> idle_;   ///< since all have ended
    double trained_seconds_ = 0.0;                                ///< in this start
    std::chrono::steady_clock::time_point looked_;                ///< for orders
};

}  // namespace loratrain
