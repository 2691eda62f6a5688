#include "plan/sweep/simulate_sweep.h"

#include <functional>
#include <queue>
#include <tuple>

namespace loratrain {

namespace {

class QueuePlayer {
  public:
    QueuePlayer(const SweepReplica& replica, const SweepRules& rules,
                std::span<const std::int32_t> queue, std::vector<TrialSpan>* spans)
        : replica_(replica), rules_(rules), queue_(queue), spans_(spans), trials_(replica) {
        if (spans_ != nullptr) spans_->resize(queue.size());
    }

    double run() {
        admit();
        while (!events_.empty()) {
            const std::int64_t next = events_.top().round;
            seconds_ += static_cast<double>(next - round_) * round_seconds(replica_, trials_);
            round_ = next;
            seconds_ += drain_seconds(replica_, trials_);
            while (!events_.empty() && events_.top().round == round_) take_event();
            if (rules_.refills || trials_.count == 0) admit();
        }
        return seconds_;
    }

  private:
    struct Event {
        std::int64_t round = 0;
        std::size_t trial = 0;  ///< of the queue
        std::size_t rung = 0;   ///< of the trial's; their number = its end
        friend bool operator>(const Event& a, const Event& b) {
            return std::tie(a.round, a.trial) > std::tie(b.round, b.trial);
        }
    };

    const TrialCosts& costs_of_trial(std::size_t trial) const {
        return replica_.classes[static_cast<std::size_t>(queue_[trial])];
    }

    void admit() {
        for (; next_ < queue_.size(); ++next_) {
            const TrialCosts& costs = costs_of_trial(next_);
            if (trials_.count > 0 && !replica_.holds(trials_.bytes + costs.bytes)) return;
            trials_.add(costs);
            if (spans_ != nullptr) (*spans_)[next_].begin = seconds_;
            schedule(next_, round_, 0);
        }
    }

    void schedule(std::size_t trial, std::int64_t begun, std::size_t rung) {
        const TrialCosts& costs = costs_of_trial(trial);
        const bool ends = rung == costs.rungs.size();
        events_.push({begun + (ends ? costs.steps : costs.rungs[rung]), trial, rung});
    }

    void take_event() {
        const Event event = events_.top();
        events_.pop();
        const TrialCosts& costs = costs_of_trial(event.trial);
        const bool ends = event.rung == costs.rungs.size();
        if (rules_.evaluates) seconds_ += ends ? costs.evaluation : costs.rung_evaluation;
        if (!ends) return schedule(event.trial, round_ - costs.rungs[event.rung], event.rung + 1);
        if (rules_.export_bytes_per_second > 0) {
            seconds_ += static_cast<double>(costs.export_bytes) / rules_.export_bytes_per_second;
        }
        trials_.remove(costs);
        if (spans_ != nullptr) (*spans_)[event.trial].end = seconds_;
    }

    const SweepReplica& replica_;
    const SweepRules& rules_;
    std::span<const std::int32_t> queue_;
    std::vector<TrialSpan>* spans_;
    ResidentTrials trials_;
    std::priority_queue<Event, std::vector<Event>, std::greater<>> events_;
    std::size_t next_ = 0;  ///< of the queue
    std::int64_t round_ = 0;
    double seconds_ = 0.0;
};

}  // namespace

double beside_seconds(const SweepRules& rules, const TrialCosts& trial) {
    double seconds = 0.0;
    if (rules.evaluates) {
        seconds +=
            trial.evaluation + trial.rung_evaluation * static_cast<double>(trial.rungs.size());
    }
    if (rules.export_bytes_per_second > 0) {
        seconds += static_cast<double>(trial.export_bytes) / rules.export_bytes_per_second;
    }
    return seconds;
}

QueueRun simulate_sweep(const SweepReplica& replica, const SweepRules& rules,
                        std::span<const std::int32_t> queue) {
    QueueRun run;
    run.seconds = QueuePlayer(replica, rules, queue, &run.spans).run();
    return run;
}

double sweep_seconds(const SweepReplica& replica, const SweepRules& rules,
                     std::span<const std::int32_t> queue) {
    return QueuePlayer(replica, rules, queue, nullptr).run();
}

}  // namespace loratrain
