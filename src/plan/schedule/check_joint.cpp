#include "plan/schedule/check_joint.h"

#include <algorithm>
#include <tuple>

namespace loratrain {

namespace {

bool agree(const Window& a, const Window& b) {
    const auto common = [](const Window& w) {
        return std::tuple(w.first_round, w.rounds, w.begins, w.drains, w.first_batch);
    };
    const auto counts = [](const BatchPlan& p) {
        return std::tuple(p.adapter, p.step, p.round, p.epoch, p.samples, p.tokens, p.padding,
                          p.targets, p.chosen_targets, p.target_weight, p.denominator,
                          p.last_of_adapter, p.evaluation);
    };
    return common(a) == common(b) &&
           std::equal(a.batches.begin(), a.batches.end(), b.batches.begin(), b.batches.end(),
                      [&](const auto& p, const auto& q) { return counts(p) == counts(q); });
}

/// Once each training batch of the window is announced.
void check_announced(const JointWindow& joint, Findings& findings) {
    const Window& window = joint.common();
    std::vector<std::int32_t> announced = joint.reductions;
    std::sort(announced.begin(), announced.end());
    std::vector<std::int32_t> wanted;
    for (std::size_t b = 0; joint.replicas.size() > 1 && b < window.batches.size(); ++b) {
        if (window.batches[b].evaluation) continue;
        wanted.push_back(window.first_batch + static_cast<std::int32_t>(b));
    }
    if (announced != wanted) findings.add("reductions are not the batches of the window");
}

}  // namespace

void SharedSums::announce(std::span<const std::int32_t> batches) {
    forget();
    announced_.insert(announced_.end(), batches.begin(), batches.end());
}

void SharedSums::forget() {
    for (; !announced_.empty() && least_came() > first_; announced_.pop_front(), ++first_) {
        const bool over = std::all_of(stepped_.begin(), stepped_.end(),
                                      [this](std::int64_t place) { return place > first_; });
        if (!over) return;
    }
}

bool SharedSums::pass(std::int64_t& place, std::int32_t batch) const {
    const std::int64_t i = place - first_;
    if (i < 0 || i >= std::ssize(announced_)) return false;
    ++place;
    return announced_[static_cast<std::size_t>(i)] == batch;
}

bool SharedSums::come(std::size_t stage, std::int32_t batch) {
    return pass(came_[stage], batch);
}

bool SharedSums::step(std::size_t stage, std::int32_t batch) {
    return pass(stepped_[stage], batch);
}

std::int64_t SharedSums::least_came() const {
    return *std::min_element(came_.begin(), came_.end());
}

bool SharedSums::is_there(std::int32_t batch) const {
    const auto end = announced_.begin() + (least_came() - first_);
    return std::find(announced_.begin(), end, batch) != end;
}

std::vector<std::int32_t> SharedSums::missing() const {
    return {announced_.begin() + (least_came() - first_), announced_.end()};
}

void check_agreement(const JointWindow& joint, Findings& findings) {
    for (std::size_t r = 1; r < joint.replicas.size(); ++r) {
        if (agree(joint.common(), joint.replicas[r])) continue;
        findings.add("replica ", r, " has another window than 0");
    }
    check_announced(joint, findings);
}

void check_reduced(const JointWindow& joint, const SharedSums& sums, Findings& findings) {
    const Window& window = joint.common();
    for (const std::int32_t b : sums.missing()) {
        const std::int32_t i = b - window.first_batch;
        const bool last_round = i >= 0 && i < std::ssize(window.batches) &&
                                window.batches[static_cast<std::size_t>(i)].round + 1 ==
                                    window.first_round + window.rounds;
        if (window.drains || (!last_round && window.rounds > 0)) {
            findings.add("batch ", b, " is not reduced by the end of the window");
        }
    }
}

}  // namespace loratrain
