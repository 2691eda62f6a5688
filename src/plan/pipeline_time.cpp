#include "plan/pipeline_time.h"

#include <algorithm>
#include <limits>

#include "base/error.h"

namespace loratrain {

namespace {

constexpr std::int64_t never = std::numeric_limits<std::int64_t>::max();

class Pipeline {
  public:
    explicit Pipeline(const PipelineLoad& load)
        : load_(load),
          count_(static_cast<std::int32_t>(load.required.size())),
          stages_(static_cast<std::size_t>(load.stages)),
          forward_end_(load.forward.size(), never),
          backward_end_(load.backward.size(), never) {
        for (std::size_t s = 0; s < stages_.size(); ++s) {
            stages_[s].limit = std::max(1, load.max_in_flight - static_cast<std::int32_t>(s));
        }
    }

    PipelineTime run() {
        PipelineTime time;
        for (Stage& stage : stages_) stage.woken = true;
        for (std::int64_t now = 0; now != never; now = next_end(now)) {
            time.makespan = now;
            for (std::size_t s = 0; s < stages_.size(); ++s) {
                if (stages_[s].woken) start_ready(s, now);
                stages_[s].woken = false;
            }
        }
        for (const Stage& stage : stages_) {
            LORATRAIN_CHECK(stage.forwarded == count_ && stage.backwarded == count_,
                            "the pipeline comes to a halt");
            time.busy += stage.busy;
        }
        return time;
    }

  private:
    struct Stage {
        std::int64_t busy_until = 0;
        std::int64_t busy = 0;
        std::int32_t forwarded = 0;
        std::int32_t backwarded = 0;
        std::int32_t limit = 1;
        bool woken = false;  ///< it or a neighbour has just ended something
    };

    std::size_t at(std::int32_t microbatch, std::size_t stage) const {
        return static_cast<std::size_t>(microbatch) * stages_.size() + stage;
    }

    void start_ready(std::size_t s, std::int64_t now) {
        Stage& stage = stages_[s];
        if (stage.busy_until > now) return;
        const bool forward = forward_ready(s, now);
        if (backward_ready(s, now) && !(s == 0 && forward)) {
            const std::size_t i = at(stage.backwarded++, s);
            start(stage, now, load_.backward[i], backward_end_[i]);
        } else if (forward) {
            const std::size_t i = at(stage.forwarded++, s);
            start(stage, now, load_.forward[i], forward_end_[i]);
        }
    }

    static void start(Stage& stage, std::int64_t now, std::int64_t time, std::int64_t& end) {
        const std::int64_t positive = std::max<std::int64_t>(time, 1);
        stage.busy += positive;
        stage.busy_until = end = now + positive;
    }

    bool forward_ready(std::size_t s, std::int64_t now) const {
        const Stage& stage = stages_[s];
        if (stage.forwarded == count_) return false;
        if (stage.forwarded - stage.backwarded >= stage.limit) return false;
        if (s > 0) return forward_end_[at(stage.forwarded, s - 1)] <= now;
        return stage.backwarded >= load_.required[static_cast<std::size_t>(stage.forwarded)];
    }

    bool backward_ready(std::size_t s, std::int64_t now) const {
        const Stage& stage = stages_[s];
        if (stage.backwarded == stage.forwarded) return false;
        return s + 1 == stages_.size() || backward_end_[at(stage.backwarded, s + 1)] <= now;
    }

    std::int64_t next_end(std::int64_t now) {
        std::int64_t next = never;
        for (const Stage& stage : stages_) {
            if (stage.busy_until > now) next = std::min(next, stage.busy_until);
        }
        for (std::size_t s = 0; s < stages_.size(); ++s) {
            if (stages_[s].busy_until != next) continue;
            stages_[s].woken = true;
            if (s > 0) stages_[s - 1].woken = true;
            if (s + 1 < stages_.size()) stages_[s + 1].woken = true;
        }
        return next;
    }

    const PipelineLoad& load_;
    std::int32_t count_;
    std::vector<Stage> stages_;
    std::vector<std::int64_t> forward_end_;
    std::vector<std::int64_t> backward_end_;
};

}  // namespace

double PipelineTime::idle_share(std::int32_t stages) const {
    if (makespan == 0) return 0.0;
    return 1.0 - static_cast<double>(busy) / (static_cast<double>(makespan) * stages);
}

PipelineTime pipeline_time(const PipelineLoad& load) {
    return Pipeline(load).run();
}

}  // namespace loratrain
