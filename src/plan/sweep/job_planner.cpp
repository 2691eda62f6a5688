#include "plan/sweep/job_planner.h"

#include <algorithm>
#include <numeric>

#include "base/error.h"
#include "plan/sweep/sweep_bounds.h"

namespace loratrain {

namespace {

std::vector<std::int32_t> without(std::vector<std::int32_t> counts,
                                  const std::vector<std::int32_t>& taken) {
    for (std::size_t c = 0; c < counts.size(); ++c) counts[c] -= taken[c];
    return counts;
}

class PolicySearch {
  public:
    PolicySearch(std::span<const SweepReplica> degrees, std::span<const double> values)
        : degrees_(degrees), values_(values) {}

    JobPolicy run(const std::vector<std::int32_t>& counts, std::int32_t free) {
        descend(counts, free, 0);
        return best_;
    }

  private:
    void descend(const std::vector<std::int32_t>& counts, std::int32_t free, std::size_t degree) {
        bool ended = true;
        for (; degree < degrees_.size(); ++degree) {
            if (degrees_[degree].ranks() > free) continue;
            PackedJob job = pack_job(degrees_[degree], counts, values_);
            if (job.counts.empty()) continue;
            ended = false;
            const std::vector<std::int32_t> left = without(counts, job.counts);
            policy_.jobs.push_back({degree, std::move(job)});
            descend(left, free - degrees_[degree].ranks(), degree);
            policy_.jobs.pop_back();
        }
        if (ended && policy_.rate() > best_.rate()) best_ = policy_;
    }

    std::span<const SweepReplica> degrees_;
    std::span<const double> values_;
    JobPolicy policy_;
    JobPolicy best_;
};

std::vector<std::int32_t> classes_of(const std::vector<std::int32_t>& counts) {
    std::vector<std::int32_t> queue;
    for (std::size_t c = 0; c < counts.size(); ++c) {
        queue.insert(queue.end(), static_cast<std::size_t>(counts[c]),
                     static_cast<std::int32_t>(c));
    }
    return queue;
}

}  // namespace

double JobPolicy::rate() const {
    return std::accumulate(jobs.begin(), jobs.end(), 0.0,
                           [](double sum, const Entry& entry) { return sum + entry.job.rate(); });
}

JobPolicy throughput_policy(std::span<const SweepReplica> degrees,
                            std::span<const std::int32_t> counts, std::span<const double> values,
                            std::int32_t free) {
    return PolicySearch(degrees, values).run({counts.begin(), counts.end()}, free);
}

JobSchedule plan_jobs(std::span<const SweepReplica> degrees, const SweepRules& rules,
                      std::span<const std::int32_t> counts, std::span<const double> values,
                      std::int32_t ranks) {
    JobSchedule schedule;
    std::vector<std::int32_t> left(counts.begin(), counts.end());
    std::vector<ScheduledJob> running;
    std::int32_t free = ranks;
    double now = 0.0;
    while (std::any_of(left.begin(), left.end(), [](std::int32_t n) { return n > 0; })) {
        for (const auto& [degree, job] : throughput_policy(degrees, left, values, free).jobs) {
            left = without(left, job.counts);
            free -= degrees[degree].ranks();
            const double seconds = sweep_seconds(degrees[degree], rules, classes_of(job.counts));
            running.push_back({degree, job.counts, now, now + seconds});
            schedule.jobs.push_back(running.back());
        }
        LORATRAIN_CHECK(!running.empty(), "a trial that fits with no degree");
        const auto next = std::min_element(
            running.begin(), running.end(),
            [](const ScheduledJob& a, const ScheduledJob& b) { return a.end < b.end; });
        now = next->end;
        free += degrees[next->degree].ranks();
        running.erase(next);
    }
    const auto last = std::max_element(
        schedule.jobs.begin(), schedule.jobs.end(),
        [](const ScheduledJob& a, const ScheduledJob& b) { return a.end < b.end; });
    if (last == schedule.jobs.end()) return schedule;
    schedule.seconds = last->end;
    schedule.ar =
        last_job_bound(last->end, ranks, last->end - last->start, degrees[last->degree].ranks());
    return schedule;
}

}  // namespace loratrain
