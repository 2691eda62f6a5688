#include "plan/schedule/check_window.h"

#include <algorithm>
#include <deque>
#include <optional>
#include <set>

#include "plan/schedule/check_contents.h"
#include "plan/text/action_text.h"

namespace loratrain {

namespace {

/// One stage while its action list is executed symbolically.
struct StageState {
    std::vector<Action> actions;  ///< of the newest window
    std::size_t next_action = 0;
    std::int32_t forwarded = 0;
    std::int32_t backwarded = 0;
    std::int32_t peak = 0;
    std::optional<std::int32_t> input;            ///< received, not forwarded
    std::optional<std::int32_t> output;           ///< forwarded, not sent
    std::optional<std::int32_t> output_gradient;  ///< received, not backwarded
    std::optional<std::int32_t> input_gradient;   ///< backwarded, not sent
    std::vector<std::int32_t> backwards_left;     ///< per batch
    std::vector<bool> partial_received;           ///< per batch: sums of the stages after
    std::vector<bool> total_received;             ///< per batch: from the stage before
    std::vector<bool> stepped;                    ///< per batch
};

/// The stages of a stream; numbers are those of the stream.
class Execution {
  public:
    explicit Execution(const ReplicaView& view)
        : view_(view),
          stages_(view.replica.stages.size()),
          up_(stages_.size()),
          down_(stages_.size()),
          newest_(view.plan.adapters.size(), -1) {}

    void run(const Window& window, const SegmentBatches& batch_of, Findings& findings) {
        findings_ = &findings;
        evaluation_ = window.evaluation;
        append(window, batch_of);
        for (bool progress = true; progress;) {
            progress = false;
            for (std::size_t s = 0; s < stages_.size(); ++s) {
                while (advance(s)) progress = true;
            }
        }
        for (std::size_t s = 0; s < stages_.size(); ++s) {
            check_ends(s);
            if (window.drains) check_drained(s);
            check_peak(s, window);
        }
    }

  private:
    using Channel = std::deque<Action>;  ///< the send actions under way

    static std::size_t position(std::int32_t i) { return static_cast<std::size_t>(i); }
    bool is_last(std::size_t s) const { return s + 1 == stages_.size(); }

    template <class... Args>
    void complain(std::size_t s, const Action& action, const Args&... args) {
        findings_->add("stage ", s, ", action ", stages_[s].next_action, " (", action_text(action),
                       "): ", args...);
    }

    void append(const Window& window, const SegmentBatches& batch_of) {
        for (const BatchPlan& batch : window.batches) {
            std::int32_t& before = newest_[index(batch.adapter)];
            predecessor_.push_back(before);
            before = static_cast<std::int32_t>(batches_.size());
            batches_.push_back(batch);
        }
        std::vector<std::int32_t> backwards(batches_.size(), 0);
        for (const std::vector<std::int32_t>& microbatch : batch_of) {
            std::vector<std::int32_t>& numbers = batch_of_.emplace_back();
            for (const std::int32_t b : microbatch) {
                numbers.push_back(window.first_batch + b);
                ++backwards[position(numbers.back())];
            }
        }
        for (std::size_t s = 0; s < stages_.size(); ++s) {
            StageState& stage = stages_[s];
            stage.next_action = 0;
            stage.actions = window.actions[s];
            stage.backwards_left.resize(batches_.size(), 0);
            stage.partial_received.resize(batches_.size(), false);
            stage.total_received.resize(batches_.size(), false);
            stage.stepped.resize(batches_.size(), false);
            for (std::size_t b = 0; b < backwards.size(); ++b) {
                stage.backwards_left[b] += backwards[b];
            }
        }
    }

    /// Executes the next action of a stage; false when there is none or it has to wait.
    bool advance(std::size_t s) {
        StageState& stage = stages_[s];
        if (stage.next_action == stage.actions.size()) return false;
        const Action action = stage.actions[stage.next_action];
        if (!execute(s, action)) return false;
        ++stage.next_action;
        return true;
    }

    bool execute(std::size_t s, const Action& action) {
        switch (action.kind) {
            case ActionKind::recv_forward:
            case ActionKind::recv_norms:
                return receive(s, action, up_[s]);
            case ActionKind::recv_backward:
                return receive(s, action, down_[s]);
            case ActionKind::send_forward:
            case ActionKind::send_norms:
                send_up(s, action);
                break;
            case ActionKind::send_backward:
                send_down(s, action);
                break;
            case ActionKind::forward:
                forward(s, action);
                break;
            case ActionKind::backward:
                backward(s, action);
                break;
            case ActionKind::step:
                step(s, action);
                break;
            case ActionKind::no_op:
                break;
        }
        if (!is_message(action.kind) && !action.carried.empty()) {
            complain(s, action, "carries sums but is no message");
        }
        return true;
    }

    static bool is_message(ActionKind kind) {
        return kind != ActionKind::forward && kind != ActionKind::backward &&
               kind != ActionKind::step && kind != ActionKind::no_op;
    }

    bool receive(std::size_t s, const Action& action, Channel& channel) {
        if (channel.empty()) return false;
        const Action sent = std::move(channel.front());
        channel.pop_front();
        const bool matches = sent.microbatch == action.microbatch &&
                             sent.carried == action.carried &&
                             counterpart(action.kind) == sent.kind;
        if (!matches) complain(s, action, "receives ", action_text(sent));
        StageState& stage = stages_[s];
        const std::int32_t microbatch = number(action.microbatch);
        if (action.kind == ActionKind::recv_forward) {
            if (stage.input) complain(s, action, "the input before it was not forwarded");
            stage.input = microbatch;
        }
        if (action.kind == ActionKind::recv_backward) {
            if (stage.output_gradient) complain(s, action, "the one before was not backwarded");
            stage.output_gradient = microbatch;
        }
        std::vector<bool>& known = action.kind == ActionKind::recv_backward ? stage.partial_received
                                                                            : stage.total_received;
        for (const std::int32_t b : action.carried) {
            if (known[position(b)]) complain(s, action, "batch ", b, " arrives a second time");
            known[position(b)] = true;
        }
        return true;
    }

    static ActionKind counterpart(ActionKind receive_kind) {
        switch (receive_kind) {
            case ActionKind::recv_forward:
                return ActionKind::send_forward;
            case ActionKind::recv_backward:
                return ActionKind::send_backward;
            default:
                return ActionKind::send_norms;
        }
    }

    void send_up(std::size_t s, const Action& action) {
        if (action.kind == ActionKind::send_forward) {
            take_produced(s, action, stages_[s].output);
        }
        check_carried(s, action);
        for (const std::int32_t b : action.carried) {
            if (!total_known(s, b)) complain(s, action, "the total of batch ", b, " is not known");
        }
        if (is_last(s)) {
            complain(s, action, "there is no next stage");
        } else {
            up_[s + 1].push_back(action);
        }
    }

    void send_down(std::size_t s, const Action& action) {
        take_produced(s, action, stages_[s].input_gradient);
        check_carried(s, action);
        std::set<std::int32_t> due;
        for (const std::int32_t b : batch_of_[index(action.microbatch)]) {
            if (batches_[position(b)].last_microbatch == action.microbatch) due.insert(b);
        }
        if (due != std::set<std::int32_t>(action.carried.begin(), action.carried.end())) {
            complain(s, action, "carries other batches than those whose last backward it follows");
        }
        for (const std::int32_t b : action.carried) {
            const bool complete = stages_[s].backwards_left[position(b)] == 0 &&
                                  (is_last(s) || stages_[s].partial_received[position(b)]);
            if (!complete) complain(s, action, "the sum of batch ", b, " is not complete");
        }
        if (s == 0) {
            complain(s, action, "there is no stage before");
        } else {
            down_[s - 1].push_back(action);
        }
    }

    void take_produced(std::size_t s, const Action& action, std::optional<std::int32_t>& produced) {
        if (produced != number(action.microbatch)) complain(s, action, "has nothing to send");
        produced.reset();
    }

    /// A message has room for one batch per adapter.
    void check_carried(std::size_t s, const Action& action) {
        std::set<AdapterId> adapters;
        for (const std::int32_t b : action.carried) {
            if (!adapters.insert(batches_[position(b)].adapter).second) {
                complain(s, action, "carries two batches of one adapter");
            }
        }
    }

    /// The first stage adds its own sums to what came down; the others are told.
    bool total_known(std::size_t s, std::int32_t b) const {
        const StageState& stage = stages_[s];
        if (s > 0) return stage.total_received[position(b)];
        return stage.backwards_left[position(b)] == 0 &&
               (is_last(s) || stage.partial_received[position(b)]);
    }

    void forward(std::size_t s, const Action& action) {
        StageState& stage = stages_[s];
        const std::int32_t microbatch = number(action.microbatch);
        if (microbatch != stage.forwarded) complain(s, action, "out of order or a second time");
        ++stage.forwarded;
        if (s > 0 && stage.input != microbatch) complain(s, action, "its input was not received");
        stage.input.reset();
        if (stage.output) complain(s, action, "the output before it was not sent");
        if (!is_last(s)) stage.output = microbatch;
        const std::int32_t held = evaluation_ ? 1 : stage.forwarded - stage.backwarded;
        stage.peak = std::max(stage.peak, held);
        for (const std::int32_t b : batch_of_[index(action.microbatch)]) check_fresh(s, action, b);
    }

    /// Weights seen by a forward of batch b: all steps before it done, its own not yet.
    void check_fresh(std::size_t s, const Action& action, std::int32_t b) {
        const StageState& stage = stages_[s];
        if (stage.stepped[position(b)]) complain(s, action, "batch ", b, " is already stepped");
        const std::int32_t before = predecessor_[position(b)];
        if (before >= 0 && !stage.stepped[position(before)]) {
            complain(s, action, "stale weights: batch ", before, " is not stepped yet");
        }
    }

    void backward(std::size_t s, const Action& action) {
        StageState& stage = stages_[s];
        const std::int32_t microbatch = number(action.microbatch);
        if (evaluation_) complain(s, action, "evaluation has no backward");
        if (microbatch != stage.backwarded) complain(s, action, "out of order or a second time");
        if (microbatch >= stage.forwarded) complain(s, action, "was not forwarded");
        ++stage.backwarded;
        if (!is_last(s) && stage.output_gradient != microbatch) {
            complain(s, action, "its gradient was not received");
        }
        stage.output_gradient.reset();
        if (stage.input_gradient) complain(s, action, "the gradient before it was not sent");
        if (s > 0) stage.input_gradient = microbatch;
        for (const std::int32_t b : batch_of_[index(action.microbatch)]) {
            --stage.backwards_left[position(b)];
            if (stage.stepped[position(b)]) complain(s, action, "batch ", b, " is already stepped");
        }
    }

    void step(std::size_t s, const Action& action) {
        StageState& stage = stages_[s];
        const std::int32_t b = action.batch;
        if (evaluation_) complain(s, action, "evaluation has no step");
        if (stage.stepped[position(b)]) complain(s, action, "is stepped a second time");
        if (stage.backwards_left[position(b)] != 0) complain(s, action, "backwards are missing");
        if (!total_known(s, b)) complain(s, action, "its norm has not reached the stage");
        stage.stepped[position(b)] = true;
    }

    void check_ends(std::size_t s) {
        const StageState& stage = stages_[s];
        if (stage.next_action < stage.actions.size()) {
            complain(s, stage.actions[stage.next_action], "waits for ever");
        }
    }

    void check_drained(std::size_t s) {
        const StageState& stage = stages_[s];
        const auto count = static_cast<std::int32_t>(batch_of_.size());
        const std::int32_t backwards = evaluation_ ? 0 : count;
        if (stage.next_action < stage.actions.size()) return;
        if (stage.forwarded != count || stage.backwarded != backwards) {
            findings_->add("stage ", s, " does ", stage.forwarded, " forwards and ",
                           stage.backwarded, " backwards of ", count, " microbatches");
        }
        if (stage.input || stage.output || stage.output_gradient || stage.input_gradient) {
            findings_->add("stage ", s, " ends with a tensor that was not used or not sent");
        }
        if (!up_[s].empty() || !down_[s].empty()) {
            findings_->add("stage ", s, " ends with messages that it did not receive");
        }
        for (std::size_t b = 0; b < stage.stepped.size() && !evaluation_; ++b) {
            if (!stage.stepped[b]) findings_->add("stage ", s, " never steps batch ", b);
        }
    }

    void check_peak(std::size_t s, const Window& window) {
        const std::int32_t peak = stages_[s].peak;
        const std::int32_t slots =
            std::max(1, view_.replica.max_in_flight - static_cast<std::int32_t>(s));
        if (peak != window.peak_in_flight[s]) {
            findings_->add("stage ", s, " has ", peak, " microbatches in flight, the window says ",
                           window.peak_in_flight[s]);
        }
        if (peak > slots) {
            findings_->add("stage ", s, " has ", peak, " microbatches in flight, more than ",
                           slots);
        }
    }

    ReplicaView view_;
    Findings* findings_ = nullptr;
    bool evaluation_ = false;
    std::vector<BatchPlan> batches_;
    SegmentBatches batch_of_;
    std::vector<StageState> stages_;
    std::vector<Channel> up_;                ///< to stage s from stage s - 1
    std::vector<Channel> down_;              ///< to stage s from stage s + 1
    std::vector<std::int32_t> predecessor_;  ///< batch of the same adapter before, or -1
    std::vector<std::int32_t> newest_;       ///< per adapter: its last batch so far, or -1
};

}  // namespace

struct StreamChecker::State {
    ReplicaView view;
    std::unique_ptr<Execution> execution;
    std::int32_t batches = 0;
    std::int32_t microbatches = 0;
};

StreamChecker::StreamChecker(const ReplicaView& view) : state_(new State{view, nullptr}) {}
StreamChecker::~StreamChecker() = default;

std::vector<std::string> StreamChecker::check(const Window& window) {
    Findings findings;
    State& state = *state_;
    if (window.begins) {
        state.execution = std::make_unique<Execution>(state.view);
        state.batches = state.microbatches = 0;
    }
    if (!state.execution || window.first_batch != state.batches ||
        window.first_microbatch != state.microbatches) {
        findings.add("the window does not continue the one before");
        return findings.take();
    }
    if (check_references(state.view, window, findings)) {
        const SegmentBatches batch_of = find_segment_batches(window, findings);
        if (findings.empty()) {
            check_contents(state.view, window, batch_of, findings);
            state.execution->run(window, batch_of, findings);
        }
    }
    state.batches += static_cast<std::int32_t>(window.batches.size());
    state.microbatches += static_cast<std::int32_t>(window.microbatches.size());
    if (window.drains) state.execution.reset();
    return findings.take();
}

std::vector<std::string> check_window(const ReplicaView& view, const Window& window) {
    StreamChecker checker(view);
    return checker.check(window);
}

}  // namespace loratrain
