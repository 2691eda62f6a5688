#include "plan/sweep/simulate_sweep.h"

#include <algorithm>
#include <cmath>
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
        std::size_t rung = 0;   ///< of rung_steps(); their number = its end
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
        const std::int32_t steps = costs_of_trial(trial).steps;
        if (rules_.rungs.empty()) return events_.push({begun + steps, trial, 0});
        const std::vector<std::int32_t> rungs = rung_steps(rules_, steps);
        events_.push({begun + (rung < rungs.size() ? rungs[rung] : steps), trial, rung});
    }

    void take_event() {
        const Event event = events_.top();
        events_.pop();
        const TrialCosts& costs = costs_of_trial(event.trial);
        if (rules_.evaluates) seconds_ += costs.evaluation;
        if (!rules_.rungs.empty()) {
            const std::vector<std::int32_t> rungs = rung_steps(rules_, costs.steps);
            if (event.rung < rungs.size()) {
                return schedule(event.trial, round_ - rungs[event.rung], event.rung + 1);
            }
        }
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

std::vector<std::int32_t> rung_steps(const SweepRules& rules, std::int32_t steps) {
    std::vector<std::int32_t> rungs;
    for (const double share : rules.rungs) {
        const auto step = static_cast<std::int32_t>(std::ceil(share * steps));
        if (step < steps && (rungs.empty() || step > rungs.back())) rungs.push_back(step);
    }
    return rungs;
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
