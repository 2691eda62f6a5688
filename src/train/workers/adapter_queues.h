#pragma once

#include <algorithm>
#include <deque>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "base/ids.h"
#include "plan/cost/met_shapes.h"
#include "train/run_ledger.h"
#include "train/workers/worker_message.h"

namespace loratrain {

/// Which of several workers trains which adapter.

/// Decides whether it pays to move an adapter to another worker. The old worker has to drain its
/// pipeline and to write a checkpoint. The cost is the longest move so far; before the first one,
/// the longest checkpoint of a worker. Times are seconds of one clock.
class MoveCosts {
  public:
    /// Largest share of the remaining work that a move may take.
    static constexpr double most_of_work = 0.5;
    /// Seconds of work below which nothing is moved.
    static constexpr double least_work = 5.0;

    void ordered(AdapterId adapter, double now) { ordered_[adapter] = now; }
    /// The dispatcher has the adapter again.
    void returned(AdapterId adapter, double now) {
        const auto found = ordered_.find(adapter);
        if (found == ordered_.end()) return;
        longest_ = std::max(longest_.value_or(0.0), now - found->second);
        ordered_.erase(found);
    }
    /// The adapter has ended before it moved.
    void ended(AdapterId adapter) { ordered_.erase(adapter); }
    /// A worker's checkpoint took so long.
    void saved(double seconds) { checkpoint_ = std::max(checkpoint_, seconds); }

    double seconds() const { return longest_.value_or(checkpoint_); }
    /// True if a move pays. `work_left`: seconds that the old worker would still train.
    bool is_worth(double work_left) const {
        return work_left >= std::max(least_work, seconds() / most_of_work);
    }

  private:
    std::map<AdapterId, double> ordered_;
    std::optional<double> longest_;
    double checkpoint_ = 0.0;
};

/// Hands adapters to workers:
/// - every worker has a queue, assigned by simulation (plan/sweep/worker_queues.h);
/// - a worker whose queue is empty gets the last adapter of the queue with most work;
/// - once all queues are empty, it gets half of the adapters of the worker that is expected to end
///   last, if moving them pays (MoveCosts);
/// - with `assignment: plora` a worker without adapters gets the next packed job as a whole, and
///   nothing more until all of the job has ended.
class AdapterQueues {
  public:
    static constexpr int nobody = -1;

    /// Empty until assign(). The arguments outlive the queues.
    AdapterQueues(const Job& job, const RunLedger& ledger, int workers);

    /// Fills the queues. `checkpoints`: per AdapterId the directory to continue from; "" = not
    /// begun.
    void assign(const Plan& plan, const std::vector<DatasetInfo>& datasets, const MetShapes& met,
                const std::vector<std::string>& checkpoints);
    /// Adds new adapters of the run, each to the queue with least work.
    void add(const std::vector<AdapterId>& adapters);

    /// The worker has room for `places` adapters.
    void ask(int worker, int places) { workers_[static_cast<std::size_t>(worker)].places = places; }
    void trained(int worker, std::int64_t tokens) {
        workers_[static_cast<std::size_t>(worker)].tokens += static_cast<double>(tokens);
    }
    /// Adds to `decisions`: adapters for workers that have asked, and adapters to give back.
    void give(Decisions& decisions);
    void take_back(const ReturnedAdapter& returned);
    void note_end(AdapterId adapter);
    /// A worker's checkpoint took so many seconds.
    void note_saving(double seconds) { move_costs_.saved(seconds); }

    int owner(AdapterId adapter) const { return owners_[index(adapter)]; }
    /// The adapter waits for a worker, and has begun in an earlier start or with another worker.
    bool waits_begun(AdapterId adapter) const {
        return is_free(adapter) && !checkpoints_[index(adapter)].empty();
    }
    /// Predicted seconds of training all queues; 0 = not known.
    double predicted_seconds() const { return predicted_seconds_; }

  private:
    struct WorkerView {
        std::vector<AdapterId> queue;  ///< not given out yet
        int places = 0;                ///< adapters that it has asked for
        double tokens = 0.0;           ///< trained since it last had no adapter
        double since = 0.0;            ///< RunClock::elapsed() at that time
    };

    bool trains(AdapterId adapter) const;
    bool is_free(AdapterId adapter) const;
    bool has_work(int worker) const;
    double work_of(AdapterId adapter) const;
    double work_left(int worker) const;
    double seconds_left(int worker) const;
    std::vector<AdapterId>* queue_for(int worker);
    bool packs() const { return job_.parallel.assignment == Assignment::plora; }
    void hand_over(int worker, AdapterId adapter, Decisions& decisions);
    void give_to(int worker, Decisions& decisions);
    void give_job_to(int worker, Decisions& decisions);
    AdapterId take_next(int worker, std::vector<AdapterId>& queue);
    std::vector<AdapterId> movable(int worker) const;
    void move_work(Decisions& decisions);

    const Job& job_;
    const RunLedger& ledger_;
    std::vector<WorkerView> workers_;
    std::deque<std::vector<AdapterId>> packed_jobs_;  ///< not given out yet
    std::vector<int> owners_;                         ///< per adapter
    std::vector<std::string> checkpoints_;            ///< per adapter that has begun
    std::set<AdapterId> leaving_;                     ///< their workers are to give them back
    MoveCosts move_costs_;
    double predicted_seconds_ = 0.0;
};

}  // namespace loratrain
