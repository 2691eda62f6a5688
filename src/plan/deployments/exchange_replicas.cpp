#include "plan/deployments/exchange_replicas.h"

#include <algorithm>
#include <utility>

namespace loratrain {

namespace {

constexpr int most_steps = 32;
constexpr std::size_t most_looked_at = 48;  ///< exchanges of a step

using Replicas = std::vector<std::int32_t>;

struct Exchange {
    double bound = 0.0;
    Replicas replicas;
};

class ReplicaExchanges {
  public:
    ReplicaExchanges(const DeploymentTask& task, const std::vector<std::size_t>& used)
        : task_(task), used_(used) {}

    /// Those that may take less than `within` seconds, the lowest bounds first.
    std::vector<Exchange> of(const Replicas& replicas, double within) {
        found_.clear();
        within_ = within;
        Replicas fewer = replicas;
        for (std::size_t i = 0; i < fewer.size(); ++i) {
            if (fewer[i] == 0) continue;
            --fewer[i];
            add(fewer, task_.options[i].ranks, replicas);
            for (std::size_t k = i; k < fewer.size(); ++k) {
                if (fewer[k] == 0) continue;
                --fewer[k];
                add(fewer, task_.options[i].ranks + task_.options[k].ranks, replicas);
                ++fewer[k];
            }
            ++fewer[i];
        }
        std::stable_sort(found_.begin(), found_.end(),
                         [](const Exchange& a, const Exchange& b) { return a.bound < b.bound; });
        found_.resize(std::min(found_.size(), most_looked_at));
        return std::move(found_);
    }

  private:
    bool hold_last(const Replicas& replicas) const {
        for (std::size_t i = 0; i < replicas.size(); ++i) {
            if (replicas[i] > 0 && task_.options[i].seconds.size() == task_.samples.size()) {
                return true;
            }
        }
        return false;
    }

    /// `ranks` to each option that can make them up.
    void add(const Replicas& fewer, std::int32_t ranks, const Replicas& before) {
        for (const std::size_t option : used_) {
            if (ranks % task_.options[option].ranks != 0) continue;
            Exchange exchange{0.0, fewer};
            exchange.replicas[option] += ranks / task_.options[option].ranks;
            if (exchange.replicas == before || !hold_last(exchange.replicas)) continue;
            exchange.bound = least_round_seconds(task_, exchange.replicas);
            if (exchange.bound < within_) found_.push_back(std::move(exchange));
        }
    }

    const DeploymentTask& task_;
    const std::vector<std::size_t>& used_;
    double within_ = 0.0;
    std::vector<Exchange> found_;
};

}  // namespace

std::vector<Replicas> exchange_replicas(const DeploymentTask& task,
                                        const std::vector<std::size_t>& used, Replicas start,
                                        const RoundSeconds& seconds) {
    std::vector<Replicas> steps;
    ReplicaExchanges exchanges(task, used);
    double best = seconds(start);
    for (int step = 0; step < most_steps; ++step) {
        Replicas next;
        for (Exchange& exchange : exchanges.of(start, best)) {
            if (exchange.bound >= best) break;
            const double taken = seconds(exchange.replicas);
            if (taken >= best) continue;
            best = taken;
            next = std::move(exchange.replicas);
        }
        if (next.empty()) break;
        steps.push_back(next);
        start = std::move(next);
    }
    return steps;
}

}  // namespace loratrain
