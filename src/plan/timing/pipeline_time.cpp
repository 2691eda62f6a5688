#include "plan/timing/pipeline_time.h"

#include <algorithm>
#include <limits>

#include "base/error.h"

namespace loratrain {

namespace {

/// List scheduling of a whole load, stage by stage instead of event by event: a stage goes on as
/// long as it is sure what it does next, by when its neighbours ended, or end at the earliest, what
/// it waits for.
class StageByStage {
  public:
    StageByStage(const PipelineLoad& load, std::span<const std::int64_t> least_left,
                 std::int64_t most)
        : load_(load),
          least_left_(least_left),
          most_(most),
          count_(static_cast<std::int32_t>(load.required.size())),
          stages_(static_cast<std::size_t>(load.stages)),
          forward_ends_(load.forward.size()),
          backward_ends_(load.backward.size()) {
        for (std::size_t s = 0; s < stages_.size(); ++s) {
            stages_[s].limit = std::max(1, load.max_in_flight - static_cast<std::int32_t>(s));
        }
    }

    /// None: it takes more than `most`.
    std::optional<PipelineTime> run() {
        while (left() > 0 && !late_) {
            const std::int64_t before = left();
            for (std::size_t s = 0; s < stages_.size(); ++s) go_on(s);
            for (std::size_t s = stages_.size(); s-- > 0;) go_on(s);
            if (left() == before) start_earliest();
        }
        if (late_) return std::nullopt;
        PipelineTime time{0, busy_};
        for (const Stage& stage : stages_) time.makespan = std::max(time.makespan, stage.free);
        return time;
    }

  private:
    struct Stage {
        std::int64_t free = 0;  ///< when it has ended what it has begun
        std::int32_t forwards = 0;
        std::int32_t backwards = 0;
        std::int32_t limit = 1;
        /// When the next forward, and the next backward, end at the earliest.
        std::int64_t next_forward = 0;
        std::int64_t next_backward = 0;
    };

    static constexpr std::int64_t never = std::numeric_limits<std::int64_t>::max() / 2;

    /// When what comes next may begin: at that time, or not sure, then or later.
    struct Ready {
        std::int64_t at = never;
        bool sure = false;
    };

    std::int64_t left() const { return 2 * std::int64_t{count_} * load_.stages - started_; }

    std::size_t at(std::int32_t microbatch, std::size_t s) const {
        return static_cast<std::size_t>(microbatch) * stages_.size() + s;
    }
    std::int64_t forward_time(std::size_t s) const {
        return std::max<std::int64_t>(1, load_.forward[at(stages_[s].forwards, s)]);
    }
    std::int64_t backward_time(std::size_t s) const {
        return std::max<std::int64_t>(1, load_.backward[at(stages_[s].backwards, s)]);
    }

    /// As far as the stage before is concerned.
    Ready forward_from(std::size_t s) const {
        const Stage& stage = stages_[s];
        if (s == 0) return {stage.free, true};
        const Stage& before = stages_[s - 1];
        if (stage.forwards == before.forwards) {
            return {std::max(stage.free, before.next_forward), false};
        }
        return {std::max(stage.free, forward_ends_[at(stage.forwards, s - 1)]), true};
    }

    /// As far as the stage behind is concerned.
    Ready backward_from(std::size_t s) const {
        const Stage& stage = stages_[s];
        if (s + 1 == stages_.size()) return {stage.free, true};
        const Stage& behind = stages_[s + 1];
        if (stage.backwards == behind.backwards) {
            return {std::max(stage.free, behind.next_backward), false};
        }
        return {std::max(stage.free, backward_ends_[at(stage.backwards, s + 1)]), true};
    }

    /// Never: a backward of the stage has to come first.
    Ready forward(std::size_t s) const {
        const Stage& stage = stages_[s];
        if (stage.forwards == count_ || stage.forwards - stage.backwards >= stage.limit) return {};
        const auto next = static_cast<std::size_t>(stage.forwards);
        if (s == 0 && stage.backwards < load_.required[next]) return {};
        return forward_from(s);
    }

    Ready backward(std::size_t s) const {
        const Stage& stage = stages_[s];
        return stage.backwards == stage.forwards ? Ready{} : backward_from(s);
    }

    void go_on(std::size_t s) {
        for (;;) {
            const Ready up = forward(s);
            const Ready down = backward(s);
            // Of what is ready at the same time the first stage prefers a forward.
            const bool up_wins = s == 0 ? up.at <= down.at : up.at < down.at;
            if (!(up_wins ? up : down).sure) break;
            start(s, up_wins, up_wins ? up.at : down.at);
        }
        note_earliest(s);
    }

    void start(std::size_t s, bool forward, std::int64_t now) {
        Stage& stage = stages_[s];
        const std::int64_t time = forward ? forward_time(s) : backward_time(s);
        std::int32_t& next = forward ? stage.forwards : stage.backwards;
        if (s == 0 && forward && static_cast<std::size_t>(next) < least_left_.size()) {
            late_ = late_ || now + least_left_[static_cast<std::size_t>(next)] > most_;
        }
        stage.free = now + time;
        late_ = late_ || stage.free > most_;
        (forward ? forward_ends_ : backward_ends_)[at(next, s)] = stage.free;
        ++next;
        ++started_;
        busy_ += time;
    }

    void note_earliest(std::size_t s) {
        Stage& stage = stages_[s];
        stage.next_forward = stage.next_backward = never;
        if (stage.forwards < count_) {
            stage.next_forward = forward_from(s).at + forward_time(s);
        }
        if (stage.backwards == count_) return;
        const bool has_forward = stage.backwards < stage.forwards;
        stage.next_backward =
            std::max(has_forward ? 0 : stage.next_forward, backward_from(s).at) + backward_time(s);
    }

    /// What is ready first of all is next, whatever comes later of what nobody is sure of.
    void start_earliest() {
        std::size_t first = stages_.size();
        Ready earliest;
        bool is_forward = false;
        for (std::size_t s = 0; s < stages_.size(); ++s) {
            for (const bool up : {true, false}) {
                const Ready ready = up ? forward(s) : backward(s);
                if (!ready.sure || ready.at >= earliest.at) continue;
                earliest = ready;
                first = s;
                is_forward = up;
            }
        }
        LORATRAIN_CHECK(first < stages_.size(), "the pipeline comes to a halt");
        start(first, is_forward, earliest.at);
    }

    const PipelineLoad& load_;
    std::span<const std::int64_t> least_left_;
    std::int64_t most_;
    std::int32_t count_;
    std::vector<Stage> stages_;
    std::vector<std::int64_t> forward_ends_;   ///< [microbatch * stages + stage]
    std::vector<std::int64_t> backward_ends_;  ///< likewise
    std::int64_t started_ = 0;
    std::int64_t busy_ = 0;
    bool late_ = false;
};

}  // namespace

double PipelineTime::idle_share(std::int32_t stages) const {
    if (makespan == 0) return 0.0;
    return 1.0 - static_cast<double>(busy) / (static_cast<double>(makespan) * stages);
}

PipelineTime pipeline_time(const PipelineLoad& load) {
    return *pipeline_time_within(load, {}, std::numeric_limits<std::int64_t>::max());
}

std::optional<PipelineTime> pipeline_time_within(const PipelineLoad& load,
                                                 const PipelineBound& bound, std::int64_t most) {
    LORATRAIN_CHECK(load.evaluation.empty() && load.first == 0, "the time is of whole loads");
    if (bound.makespan() > most) return std::nullopt;
    return StageByStage(load, bound.from, most).run();
}

namespace {

using Times = std::vector<std::int64_t>;

/// From the last microbatch to the first.
class Backwards {
  public:
    explicit Backwards(const PipelineLoad& load)
        : load_(load),
          stages_(static_cast<std::size_t>(load.stages)),
          count_(load.required.size()),
          forward_(count_ * stages_),
          next_backward_(stages_),
          left_(stages_),
          released_(count_ + 1),
          down_(stages_) {
        for (std::size_t s = 1; s < stages_ && count_ > 0; ++s) {
            down_[s] = down_[s - 1] + time(load.backward, count_ - 1, s - 1);
        }
    }

    PipelineBound run() {
        PipelineBound bound;
        bound.from.resize(count_);
        for (std::size_t m = count_; m-- > 0;) {
            const std::int64_t work = add_work(m);
            add_backwards(m);
            add_forwards(m);
            bound.from[m] = std::max(work, forward_[m * stages_]);
            if (m + 1 < count_) {
                bound.from[m] =
                    std::max(bound.from[m], time(load_.forward, m, 0) + bound.from[m + 1]);
            }
            const auto required = static_cast<std::size_t>(std::max(0, load_.required[m]));
            LORATRAIN_CHECK(required <= m, "microbatch ", m, " requires ", required, " backwards");
            released_[required] = std::max(released_[required], bound.from[m]);
        }
        return bound;
    }

  private:
    std::int64_t time(const Times& times, std::size_t m, std::size_t s) const {
        return std::max<std::int64_t>(times[m * stages_ + s], 1);
    }

    std::int64_t add_work(std::size_t m) {
        std::int64_t most = 0;
        std::int64_t up = 0;
        for (std::size_t s = 0; s < stages_; ++s) {
            const std::int64_t forward = time(load_.forward, m, s);
            left_[s] += forward + time(load_.backward, m, s);
            most = std::max(most, up + left_[s] + down_[s]);
            up += forward;
        }
        return most;
    }

    /// From the start of each backward of m to the end of all.
    void add_backwards(std::size_t m) {
        std::int64_t after = released_[m + 1];
        for (std::size_t s = 0; s < stages_; ++s) {
            const std::int32_t limit = load_.max_in_flight - static_cast<std::int32_t>(s);
            const std::size_t held = m + static_cast<std::size_t>(std::max(1, limit));
            after = std::max(after, next_backward_[s]) + time(load_.backward, m, s);
            if (held < count_) after = std::max(after, forward_[held * stages_ + s]);
            next_backward_[s] = after;
        }
    }

    void add_forwards(std::size_t m) {
        std::int64_t after = next_backward_.back();
        for (std::size_t s = stages_; s-- > 0;) {
            if (m + 1 < count_) after = std::max(after, forward_[(m + 1) * stages_ + s]);
            after += time(load_.forward, m, s);
            forward_[m * stages_ + s] = after;
        }
    }

    const PipelineLoad& load_;
    std::size_t stages_;
    std::size_t count_;
    Times forward_;        ///< [microbatch][stage]: from the start of a forward to the end of all
    Times next_backward_;  ///< per stage: from the start of the backward after to the end of all
    Times left_;           ///< per stage: work of the microbatch and those after
    Times released_;       ///< per number of backwards: from the first forward that requires them
    Times down_;           ///< per stage: what the last gradient takes from there to the first
};

}  // namespace

std::int64_t least_work(const PipelineLoad& times, int repeats) {
    const auto time = [](std::int64_t given) { return std::max<std::int64_t>(1, given); };
    const auto stages = static_cast<std::size_t>(times.stages);
    std::int64_t most = 0;
    std::int64_t up = 0;
    std::int64_t down = 0;
    for (std::size_t s = 0; s < stages && !times.forward.empty(); ++s) {
        std::int64_t work = 0;
        for (std::size_t i = s; i < times.forward.size(); i += stages) {
            work += time(times.forward[i]) + time(times.backward[i]);
        }
        most = std::max(most, up + repeats * work + down);
        up += time(times.forward[s]);
        down += time(times.backward[times.backward.size() - stages + s]);
    }
    return most;
}

PipelineBound pipeline_bound(const PipelineLoad& load) {
    LORATRAIN_CHECK(load.evaluation.empty() && load.first == 0, "the bound is of whole loads");
    return Backwards(load).run();
}

}  // namespace loratrain
