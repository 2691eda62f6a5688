#include "plan/check_window.h"

#include <algorithm>
#include <deque>
#include <optional>
#include <set>

#include "plan/action_text.h"
#include "plan/check_contents.h"

namespace loratrain {

namespace {

/// One stage while its action list is executed symbolically.
struct StageState {
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

class Execution {
  public:
    Execution(const Plan& plan, const Window& window, const SegmentBatches& batch_of,
              Findings& findings)
        : plan_(plan),
          window_(window),
          batch_of_(batch_of),
          findings_(findings),
          stages_(window.actions.size()),
          up_(window.actions.size()),
          down_(window.actions.size()) {
        const std::size_t batches = window.batches.size();
        StageState start;
        start.backwards_left.assign(batches, 0);
        start.partial_received.assign(batches, false);
        start.total_received.assign(batches, false);
        start.stepped.assign(batches, false);
        for (const std::vector<std::int32_t>& microbatch : batch_of) {
            for (const std::int32_t b : microbatch) ++start.backwards_left[position(b)];
        }
        std::fill(stages_.begin(), stages_.end(), start);
        find_predecessors();
    }

    void run() {
        for (bool progress = true; progress;) {
            progress = false;
            for (std::size_t s = 0; s < stages_.size(); ++s) {
                while (advance(s)) progress = true;
            }
        }
        for (std::size_t s = 0; s < stages_.size(); ++s) check_end(s);
    }

  private:
    using Channel = std::deque<const Action*>;  ///< the send actions under way

    static std::size_t position(std::int32_t i) { return static_cast<std::size_t>(i); }
    bool is_last(std::size_t s) const { return s + 1 == stages_.size(); }

    template <class... Args>
    void complain(std::size_t s, const Action& action, const Args&... args) {
        findings_.add("stage ", s, ", action ", stages_[s].next_action, " (", action_text(action),
                      "): ", args...);
    }

    void find_predecessors() {
        std::vector<std::int32_t> newest(plan_.adapters.size(), -1);
        for (std::size_t b = 0; b < window_.batches.size(); ++b) {
            std::int32_t& before = newest[index(window_.batches[b].adapter)];
            predecessor_.push_back(before);
            before = static_cast<std::int32_t>(b);
        }
    }

    /// Executes the next action of a stage; false when there is none or it has to wait.
    bool advance(std::size_t s) {
        StageState& stage = stages_[s];
        if (stage.next_action == window_.actions[s].size()) return false;
        const Action& action = window_.actions[s][stage.next_action];
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
        const Action& sent = *channel.front();
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
            up_[s + 1].push_back(&action);
        }
    }

    void send_down(std::size_t s, const Action& action) {
        take_produced(s, action, stages_[s].input_gradient);
        check_carried(s, action);
        std::set<std::int32_t> due;
        for (const std::int32_t b : batch_of_[index(action.microbatch)]) {
            if (window_.batches[position(b)].last_microbatch == action.microbatch) due.insert(b);
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
            down_[s - 1].push_back(&action);
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
            if (!adapters.insert(window_.batches[position(b)].adapter).second) {
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
        const std::int32_t held = window_.evaluation ? 1 : stage.forwarded - stage.backwarded;
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
        if (window_.evaluation) complain(s, action, "evaluation has no backward");
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
        if (window_.evaluation) complain(s, action, "evaluation has no step");
        if (stage.stepped[position(b)]) complain(s, action, "is stepped a second time");
        if (stage.backwards_left[position(b)] != 0) complain(s, action, "backwards are missing");
        if (!total_known(s, b)) complain(s, action, "its norm has not reached the stage");
        stage.stepped[position(b)] = true;
    }

    void check_end(std::size_t s) {
        const StageState& stage = stages_[s];
        if (stage.next_action < window_.actions[s].size()) {
            complain(s, window_.actions[s][stage.next_action], "waits for ever");
            return;
        }
        const auto count = static_cast<std::int32_t>(window_.microbatches.size());
        const std::int32_t backwards = window_.evaluation ? 0 : count;
        if (stage.forwarded != count || stage.backwarded != backwards) {
            findings_.add("stage ", s, " does ", stage.forwarded, " forwards and ",
                          stage.backwarded, " backwards of ", count, " microbatches");
        }
        if (stage.input || stage.output || stage.output_gradient || stage.input_gradient) {
            findings_.add("stage ", s, " ends with a tensor that was not used or not sent");
        }
        if (!up_[s].empty() || !down_[s].empty()) {
            findings_.add("stage ", s, " ends with messages that it did not receive");
        }
        for (std::size_t b = 0; b < stage.stepped.size() && !window_.evaluation; ++b) {
            if (!stage.stepped[b]) findings_.add("stage ", s, " never steps batch ", b);
        }
        check_peak(s);
    }

    void check_peak(std::size_t s) {
        const std::int32_t peak = stages_[s].peak;
        const std::int32_t slots = std::max(1, plan_.max_in_flight - static_cast<std::int32_t>(s));
        if (peak != window_.peak_in_flight[s]) {
            findings_.add("stage ", s, " has ", peak, " microbatches in flight, the window says ",
                          window_.peak_in_flight[s]);
        }
        if (peak > slots) {
            findings_.add("stage ", s, " has ", peak, " microbatches in flight, more than ", slots);
        }
    }

    const Plan& plan_;
    const Window& window_;
    const SegmentBatches& batch_of_;
    Findings& findings_;
    std::vector<StageState> stages_;
    std::vector<Channel> up_;                ///< to stage s from stage s - 1
    std::vector<Channel> down_;              ///< to stage s from stage s + 1
    std::vector<std::int32_t> predecessor_;  ///< batch of the same adapter before, or -1
};

}  // namespace

std::vector<std::string> check_window(const Plan& plan, const Window& window) {
    Findings findings;
    if (check_references(plan, window, findings)) {
        const SegmentBatches batch_of = find_segment_batches(window, findings);
        if (findings.empty()) {
            check_contents(plan, window, batch_of, findings);
            Execution(plan, window, batch_of, findings).run();
        }
    }
    return findings.take();
}

}  // namespace loratrain
