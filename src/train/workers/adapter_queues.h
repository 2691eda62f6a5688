#pragma once

#include <deque>
#include <set>
#include <string>
#include <vector>

#include "plan/cost/met_shapes.h"
#include "train/run_ledger.h"
#include "train/workers/move_costs.h"
#include "train/workers/worker_message.h"

namespace loratrain {

/// Which of several workers has which adapter, and who gets which next. Every worker has a queue,
/// assigned by simulation (plan/sweep/worker_queues.h). Once it is empty, the worker gets the last
/// of the queue that has most work. Once all queues are, it gets half of what the worker that is
/// expected to end last has begun, where that pays (move_costs.h). With `assignment: plora` a
/// worker that has nothing gets the next packed job whole, and nothing more until all of it has
/// ended.
class AdapterQueues {
  public:
    static constexpr int nobody = -1;

    /// Before assign() there is nothing to give. The arguments outlive the queues.
    AdapterQueues(const Job& job, const RunLedger& ledger, int workers);

    /// `checkpoints`: per AdapterId the directory that it goes on from; "" = it has not begun.
    void assign(const Plan& plan, const std::vector<DatasetInfo>& datasets, const MetShapes& met,
                const std::vector<std::string>& checkpoints);
    /// The run has got these adapters: each goes to the queue with least work.
    void add(const std::vector<AdapterId>& adapters);

    /// The worker has room for so many adapters, and has trained so many tokens more.
    void ask(int worker, int places) { workers_[static_cast<std::size_t>(worker)].places = places; }
    void trained(int worker, std::int64_t tokens) {
        workers_[static_cast<std::size_t>(worker)].tokens += static_cast<double>(tokens);
    }
    /// Hands adapters to whoever has asked, and asks for some back, in `decisions`.
    void give(Decisions& decisions);
    void take_back(const ReturnedAdapter& returned);
    void note_end(AdapterId adapter);
    /// A checkpoint of a worker took so long.
    void note_saving(double seconds) { move_costs_.saved(seconds); }

    int owner(AdapterId adapter) const { return owners_[index(adapter)]; }
    /// The adapter has begun, in an earlier start or with another worker, and waits for a worker.
    bool waits_begun(AdapterId adapter) const {
        return is_free(adapter) && !checkpoints_[index(adapter)].empty();
    }
    /// That training all queues is predicted to take; 0 = not known.
    double predicted_seconds() const { return predicted_seconds_; }

  private:
    struct WorkerView {
        std::vector<AdapterId> queue;  ///< not given out yet
        int places = 0;                ///< that it has asked for
        double tokens = 0.0;           ///< trained since it last had nothing
        double since = 0.0;            ///< RunClock::elapsed() then
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
    std::vector<std::string> checkpoints_;            ///< per adapter, of those that have begun
    std::set<AdapterId> leaving_;                     ///< their workers are asked to give them back
    MoveCosts move_costs_;
    double predicted_seconds_ = 0.0;
};

}  // namespace loratrain
