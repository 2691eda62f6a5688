#include "unit/plan/sweep_fixtures.h"

#include <algorithm>
#include <tuple>

namespace loratrain::plan_test {

SweepReplica random_replica(std::uint64_t seed, int most_stages, int most_classes) {
    Draw draw(seed);
    const auto drawn = [&](int low, int high) { return draw.between(low, high) / 1000.0; };
    SweepReplica replica;
    replica.stages = draw.between(1, most_stages);
    replica.microbatch_tokens = draw.between(20, 200);
    for (int s = 0; s < replica.stages; ++s) replica.fixed.push_back(drawn(100, 400));
    replica.host.resize(replica.fixed.size());
    replica.messages = replica.stages > 1 ? drawn(0, 50) : 0.0;
    const int classes = draw.between(1, most_classes);
    const bool little_room = draw.one_in(2);
    for (int c = 0; c < classes; ++c) {
        TrialCosts trial;
        trial.steps = draw.between(1, 4) * draw.between(1, 6);
        trial.samples = draw.between(1, 4);
        trial.tokens = draw.between(1, static_cast<int>(replica.microbatch_tokens));
        for (int s = 0; s < replica.stages; ++s) {
            trial.rows.push_back(trial.tokens * drawn(1, 10));
            trial.step.push_back(drawn(5, 40));
        }
        trial.bytes = static_cast<std::uint64_t>(draw.between(10, 60));
        trial.export_bytes = trial.bytes / 2;
        trial.evaluation = draw.one_in(2) ? drawn(10, 900) : 0.0;
        for (int step = 1; step < trial.steps; ++step) {
            if (draw.one_in(6)) trial.rungs.push_back(step);
        }
        trial.rung_evaluation = trial.evaluation / 3.0;
        replica.classes.push_back(trial);
    }
    if (little_room) replica.room = static_cast<std::uint64_t>(draw.between(60, 150));
    std::sort(replica.classes.begin(), replica.classes.end(), [](const auto& a, const auto& b) {
        return std::tie(a.steps, a.tokens) > std::tie(b.steps, b.tokens);
    });
    return replica;
}

ClassCounts random_counts(std::uint64_t seed, const SweepReplica& replica, int most) {
    Draw draw(seed);
    const auto classes = static_cast<int>(replica.classes.size());
    ClassCounts counts(replica.classes.size(), 0);
    counts.front() = 1;
    for (int left = draw.between(1, most) - 1; left > 0; --left) {
        ++counts[static_cast<std::size_t>(draw.between(0, classes - 1))];
    }
    return counts;
}

void for_each_choice(const ClassCounts& counts,
                     const std::function<void(const ClassCounts&)>& use) {
    ClassCounts choice(counts.size(), 0);
    const std::function<void(std::size_t)> from = [&](std::size_t c) {
        if (c == counts.size()) return use(choice);
        for (choice[c] = 0; choice[c] <= counts[c]; ++choice[c]) from(c + 1);
        choice[c] = 0;
    };
    from(0);
}

ClassCounts difference(const ClassCounts& all, const ClassCounts& taken) {
    ClassCounts left = all;
    for (std::size_t c = 0; c < left.size(); ++c) left[c] -= taken[c];
    return left;
}

}  // namespace loratrain::plan_test
