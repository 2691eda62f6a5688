#pragma once

#include <chrono>
#include <deque>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "comm/text_channel.h"
#include "plan/predict/met_shapes.h"
#include "train/checkpoint/worker_checkpoints.h"
#include "train/orders/inbox.h"
#include "train/records/journal.h"
#include "train/search/sweep_records.h"
#include "train/workers/move_costs.h"
#include "train/workers/worker_message.h"

namespace loratrain {

/// Where the workers of a run get their adapters, on rank 0 beside worker 0: it knows how all of
/// them are, hands them out one by one, judges trials, takes orders of people, and writes what the
/// run leaves as one (status.json, results.csv, event files, sweep/). It never waits for a worker,
/// nor they for it, unless they have nothing to train: who has room asks for one adapter ahead.
///
/// Every worker has a queue, assigned by simulation (plan/sweep/worker_queues.h); once it is empty,
/// the worker gets the last of the queue that has most work; once all queues are, half of what the
/// worker that is expected to end last has begun, where that pays (move_costs.h). An adapter that
/// has ended is recorded (SweepRecords) and never given out again.
class Dispatcher {
  public:
    struct Parts {
        const Job& job;
        const Plan& plan;  ///< of one worker; they are alike
        const std::vector<DatasetInfo>& datasets;
        TextChannel& leaders;  ///< of all workers; this rank is the root
        int workers = 1;
        int ranks = 1;  ///< of all workers together
        StatusView view;
        MetShapes met_shapes{};  ///< that the stages of a worker have met
    };
    /// What `parts` refer to outlives the dispatcher.
    explicit Dispatcher(const Parts& parts);

    /// From here it serves: goes on with what former starts have left, and says so.
    void begin(const FormerRun& former);

    /// From the worker on this rank.
    void take(const WorkerReport& report);
    /// Hears all others, looks for orders of people and posts what has come of it; to be called
    /// often.
    void serve();
    /// For the worker on this rank.
    std::optional<Decisions> next_of_own();

    // An inbox file adds adapters: worker 0 looks at it first, and asks the dispatcher to accept or
    // to refuse it; once it has taken it, all others do.
    void accept(const InboxFile& file) { inbox_->accept(file); }
    void refuse(const InboxFile& file, const std::string& why);
    void added(const InboxFile& file);

    /// How all adapters are.
    RunState state() const { return adapters_.state(clock_.elapsed()); }
    /// Why all have stopped; "" = they have not.
    const std::string& stop_reason() const { return stop_reason_; }
    /// Seconds that training the queues was predicted to take, and has taken.
    std::string makespan_text() const;
    /// Training has thrown on this rank: records why.
    void record_failure(const std::string& why) { journal_.end("failed", why); }

  private:
    static constexpr int nobody = -1;
    struct WorkerView {
        std::vector<AdapterId> queue;  ///< not given out yet
        int places = 0;                ///< that it has asked for
        bool stopped = false;
        double tokens = 0.0;  ///< trained since it last had nothing
        double since = 0.0;   ///< RunClock::elapsed() then
    };
    /// What workers know of an adapter that changes seldom.
    struct Reported {
        bool ended = false;
        std::size_t rungs = 0;
        int promoted = 0;
        friend bool operator==(const Reported&, const Reported&) = default;
    };

    bool is_ended(AdapterId adapter) const;
    void announce_start(const FormerRun& former);
    void queue_adapters();

    // What workers say.
    void take_state(const AdapterUpdate& update, bool at_rung);
    void note_saved(const WorkerReport& report);
    void note_changes();

    // Who gets what.
    bool is_free(AdapterId adapter) const;
    bool has_work(int worker) const;
    double work_of(AdapterId adapter) const;
    double work_left(int worker) const;
    std::vector<AdapterId>* queue_for(int worker);
    void give_to(int worker);
    void give();
    void take_returned(const ReturnedAdapter& returned);
    double seconds_left(int worker) const;
    std::vector<AdapterId> movable(int worker) const;
    void move_work();

    // What people want, and the end.
    void look_for_orders();
    void stop_adapter(const std::string& name);
    void end_free(AdapterId adapter, const std::string& why);
    void look_at_budget();
    bool all_stopped() const;
    void look_at_end();
    void end(ExitCode code);
    void post();

    Parts parts_;
    RunClock clock_;
    AdapterTable adapters_;
    TrialSearch search_;
    SweepRecords sweep_;
    Journal journal_;
    std::optional<Inbox> inbox_;
    std::vector<WorkerView> workers_;
    std::vector<int> owners_;               ///< per adapter, the worker that has it
    std::vector<std::string> checkpoints_;  ///< per adapter, of those that begun before this start
    std::vector<Reported> reported_;        ///< per adapter
    /// Per adapter, steps that no checkpoint of a former start or of a move must keep.
    std::vector<std::int32_t> saved_;
    std::set<AdapterId> leaving_;     ///< their workers are asked to give them back
    std::string adding_;              ///< inbox file that worker 0 looks at; "" = none
    std::set<std::string> stopping_;  ///< adapters whose stop files are not removed yet
    MoveCosts move_costs_;
    FormerCheckpoints former_{{}};
    Decisions decisions_;  ///< to be posted
    std::deque<Decisions> own_;
    std::string stop_reason_;
    bool budget_reported_ = false;
    bool over_ = false;
    double predicted_seconds_ = 0.0;
    std::optional<std::chrono::steady_clock::time_point> given_;  ///< first
    std::optional<std::chrono::steady_clock::time_point> idle_;   ///< since all have ended
    double trained_seconds_ = 0.0;                                ///< in this start
    std::chrono::steady_clock::time_point looked_;                ///< for orders
};

}  // namespace loratrain
