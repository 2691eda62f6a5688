#include "plan/schedule/check_window.h"

#include <algorithm>
#include <deque>
#include <optional>
#include <set>
#include <utility>

#include "plan/action_traits.h"
#include "plan/memory/memory_model.h"
#include "plan/replica_view.h"
#include "plan/schedule/check_contents.h"
#include "plan/schedule/check_joint.h"
#include "plan/schedule/stream_batches.h"
#include "plan/text/action_text.h"

namespace loratrain {

namespace {

/// What lies where; empty or the microbatch.
using Places = std::vector<std::optional<std::int32_t>>;

/// One stage while its action list is executed symbolically.
struct StageState {
    StageState(const ReplicaView& view, std::size_t stage)
        : slots(static_cast<std::size_t>(slot_count(view, stage))), gradients(gradient_buffers) {}

    std::vector<Action> actions;  ///< of the newest window
    std::size_t next_action = 0;
    std::int32_t forwarded = 0;
    std::int32_t backwarded = 0;
    std::int32_t peak = 0;
    std::optional<std::int32_t> input;            ///< received, not forwarded
    std::optional<std::int32_t> output;           ///< forwarded, not sent
    std::optional<std::int32_t> output_gradient;  ///< received, not backwarded
    std::optional<std::int32_t> input_gradient;   ///< backwarded, not sent
    std::int32_t input_gradient_buffer = -1;
    Places slots;      ///< from its input to its backward; evaluation: to its output's sending
    Places gradients;  ///< received, not backwarded
};

/// The stages of a stream; numbers are those of the stream.
class Execution {
  public:
    /// `name`: what findings about it begin with. `sums`: of all replicas, among whose stages its
    /// own come behind `first_stage` others; outlives it.
    Execution(const ReplicaView& view, std::string name, SharedSums& sums, std::size_t first_stage)
        : view_(view),
          name_(std::move(name)),
          joint_(view.plan.replicas.size() > 1),
          sums_(sums),
          first_stage_(first_stage),
          up_(view.replica.stages.size()),
          down_(up_.size()),
          batches_(view.plan.adapters.size(), up_.size()) {
        for (std::size_t s = 0; s < up_.size(); ++s) stages_.emplace_back(view, s);
    }

    void begin(const Window& window, const SegmentBatches& batch_of, Findings& findings) {
        findings_ = &findings;
        append(window, batch_of);
    }

    /// As far as it comes without other replicas; whether that is any further.
    bool run() {
        bool any = false;
        for (bool progress = true; progress;) {
            progress = false;
            for (std::size_t s = 0; s < stages_.size(); ++s) {
                while (advance(s)) progress = any = true;
            }
        }
        return any;
    }

    void end(const Window& window) {
        for (std::size_t s = 0; s < stages_.size(); ++s) {
            check_ends(s);
            if (window.drains) check_drained(s);
            check_peak(s, window);
        }
    }

    std::size_t size() const { return batches_.size(); }

  private:
    using Sent = std::deque<Action>;  ///< messages under way

    bool is_last(std::size_t s) const { return s + 1 == stages_.size(); }

    template <class... Args>
    void complain(std::size_t s, const Action& action, const Args&... args) {
        findings_->add(stage_name(s), ", action ", stages_[s].next_action, " (",
                       action_text(action), "): ", args...);
    }
    std::string stage_name(std::size_t s) const { return cat(name_, "stage ", s); }

    void append(const Window& window, const SegmentBatches& batch_of) {
        std::int32_t backwarded = batches_.microbatches();
        for (const StageState& stage : stages_) {
            backwarded = std::min(backwarded, stage.backwarded);
        }
        batches_.append(window, batch_of, backwarded);
        for (std::size_t s = 0; s < stages_.size(); ++s) {
            stages_[s].next_action = 0;
            stages_[s].actions = window.actions[s];
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
        const ActionTraits& traits = traits_of(action.kind);
        if (traits.role == ActionRole::receive) {
            return receive(s, action, goes_up(traits.channel) ? up_[s] : down_[s]);
        }
        switch (action.kind) {
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
                if (waits_for_sum(s, action)) return false;
                step(s, action);
                break;
            case ActionKind::reduce:
                reduce(s, action);
                break;
            default:
                break;
        }
        if (computes(action.kind) && !action.carried.empty()) {
            complain(s, action, "carries sums but is no message");
        }
        return true;
    }

    bool receive(std::size_t s, const Action& action, Sent& messages) {
        if (messages.empty()) return false;
        const Action sent = std::move(messages.front());
        messages.pop_front();
        const bool matches = sent.microbatch == action.microbatch &&
                             sent.carried == action.carried &&
                             traits_of(sent.kind).channel == traits_of(action.kind).channel;
        if (!matches) complain(s, action, "receives ", action_text(sent));
        check_peer(s, action);
        StageState& stage = stages_[s];
        if (action.kind == ActionKind::recv_forward) {
            if (stage.input) complain(s, action, "the input before it was not forwarded");
            stage.input = number(action.microbatch);
            take_place(s, action, stage.slots, action.slot, "slot");
        } else {
            take_place(s, action, stage.gradients, action.buffer, "buffer");
        }
        if (action.kind == ActionKind::recv_backward) {
            if (stage.output_gradient) complain(s, action, "the one before was not backwarded");
            stage.output_gradient = number(action.microbatch);
        }
        if (action.kind == ActionKind::recv_norms) empty_place(stage.gradients, action.buffer);
        for (const std::int32_t b : action.carried) note_received(s, action, b);
        return true;
    }

    void note_received(std::size_t s, const Action& action, std::int32_t b) {
        BatchProgress* on = batches_.progress(s, b);
        if (on == nullptr) return complain(s, action, "batch ", b, " has left the stage");
        bool& known =
            action.kind == ActionKind::recv_backward ? on->partial_received : on->total_received;
        if (known) complain(s, action, "batch ", b, " arrives a second time");
        known = true;
    }

    /// The neighbour that the message goes to or comes from.
    void check_peer(std::size_t s, const Action& action) {
        const ActionTraits& traits = traits_of(action.kind);
        const bool sends = traits.role == ActionRole::send;
        const std::size_t neighbour = goes_up(traits.channel) == sends ? s + 1 : s - 1;
        if (neighbour >= stages_.size()) return;
        const std::int32_t rank = view_.replica.stages[neighbour].rank;
        if (action.peer != rank) complain(s, action, "its peer is rank ", rank);
    }

    /// Slot or buffer number `at` gets the action's microbatch; what was there must be done with.
    void take_place(std::size_t s, const Action& action, Places& places, std::int32_t at,
                    const char* what) {
        if (at < 0 || place(at) >= places.size()) {
            return complain(s, action, "there is no ", what, " ", at);
        }
        const std::optional<std::int32_t> held = places[place(at)];
        if (held) complain(s, action, what, " ", at, " still holds microbatch ", *held);
        places[place(at)] = number(action.microbatch);
    }
    /// It must be there.
    void check_place(std::size_t s, const Action& action, const Places& places, std::int32_t at,
                     const char* what) {
        const bool there =
            at >= 0 && place(at) < places.size() && places[place(at)] == number(action.microbatch);
        if (!there) complain(s, action, "is not in ", what, " ", at);
    }
    static void empty_place(Places& places, std::int32_t at) {
        if (at >= 0 && place(at) < places.size()) places[place(at)].reset();
    }
    static std::size_t place(std::int32_t i) { return static_cast<std::size_t>(i); }

    void send_up(std::size_t s, const Action& action) {
        if (action.kind == ActionKind::send_forward) {
            take_produced(s, action, stages_[s].output);
            check_place(s, action, stages_[s].slots, action.slot, "slot");
            if (evaluates(action)) empty_place(stages_[s].slots, action.slot);
        } else {
            check_buffer(s, action);
        }
        check_peer(s, action);
        check_carried(s, action);
        for (const std::int32_t b : action.carried) {
            if (!batches_.total_known(s, b)) {
                complain(s, action, "the total of batch ", b, " is not known");
            }
        }
        if (is_last(s)) {
            complain(s, action, "there is no next stage");
        } else {
            up_[s + 1].push_back(action);
        }
    }

    void send_down(std::size_t s, const Action& action) {
        take_produced(s, action, stages_[s].input_gradient);
        check_buffer(s, action);
        if (action.buffer != stages_[s].input_gradient_buffer) {
            complain(s, action, "is not in buffer ", action.buffer);
        }
        check_peer(s, action);
        check_carried(s, action);
        std::set<std::int32_t> due;
        for (const std::int32_t b : batches_.batches_in(action.microbatch)) {
            const BatchState* batch = batches_.find(b);
            const bool ends = batch != nullptr && batch->last_microbatch == action.microbatch;
            if (ends && !joint_) due.insert(b);
        }
        if (due != std::set<std::int32_t>(action.carried.begin(), action.carried.end())) {
            complain(s, action, "carries other batches than those whose last backward it follows");
        }
        for (const std::int32_t b : action.carried) {
            if (!batches_.sum_complete(s, b)) {
                complain(s, action, "the sum of batch ", b, " is not complete");
            }
        }
        if (s == 0) {
            complain(s, action, "there is no stage before");
        } else {
            down_[s - 1].push_back(action);
        }
    }

    void check_buffer(std::size_t s, const Action& action) {
        if (action.buffer < 0 || action.buffer >= gradient_buffers) {
            complain(s, action, "there is no buffer ", action.buffer);
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
            if (batches_.progress(s, b) == nullptr) {
                complain(s, action, "batch ", b, " has left the stage");
            } else if (batches_.find(b)->evaluation) {
                complain(s, action, "carries evaluation ", b);
            } else if (!adapters.insert(batches_.find(b)->adapter).second) {
                complain(s, action, "carries two batches of one adapter");
            }
        }
    }

    void forward(std::size_t s, const Action& action) {
        StageState& stage = stages_[s];
        const std::int32_t microbatch = number(action.microbatch);
        if (microbatch != stage.forwarded) complain(s, action, "out of order or a second time");
        ++stage.forwarded;
        if (s > 0 && stage.input != microbatch) complain(s, action, "its input was not received");
        stage.input.reset();
        if (s == 0) {
            take_place(s, action, stage.slots, action.slot, "slot");
        } else {
            check_place(s, action, stage.slots, action.slot, "slot");
        }
        if (evaluates(action) && is_last(s)) empty_place(stage.slots, action.slot);
        if (stage.output) complain(s, action, "the output before it was not sent");
        if (!is_last(s)) stage.output = microbatch;
        stage.peak = std::max(stage.peak, stage.forwarded - stage.backwarded);
        for (const std::int32_t b : batches_.batches_in(action.microbatch)) {
            check_fresh(s, action, b);
            if (evaluates(action)) note_evaluated(s, b);
        }
        pass_evaluations(stage);
    }

    bool evaluates(const Action& action) const { return batches_.evaluates(action.microbatch); }

    /// An evaluation is over with its last forward: its adapter's next batch may come.
    void note_evaluated(std::size_t s, std::int32_t b) {
        BatchProgress* on = batches_.progress(s, b);
        if (on != nullptr && --on->passes_left == 0) on->stepped = true;
    }

    /// They count as backwarded once they, and all that was before them, are over.
    void pass_evaluations(StageState& stage) const {
        while (stage.backwarded < stage.forwarded &&
               batches_.evaluates(MicrobatchId{stage.backwarded})) {
            ++stage.backwarded;
        }
    }

    /// Weights seen by a forward of batch b: all steps before it done, its own not yet.
    void check_fresh(std::size_t s, const Action& action, std::int32_t b) {
        if (batches_.is_stepped(s, b)) {
            return complain(s, action, "batch ", b, " is already stepped");
        }
        const std::int32_t before = batches_.find(b)->predecessor;
        if (before >= 0 && !batches_.is_stepped(s, before)) {
            complain(s, action, "stale weights: batch ", before, " is not stepped yet");
        }
    }

    void backward(std::size_t s, const Action& action) {
        StageState& stage = stages_[s];
        const std::int32_t microbatch = number(action.microbatch);
        if (evaluates(action)) return complain(s, action, "evaluation has no backward");
        if (microbatch != stage.backwarded) complain(s, action, "out of order or a second time");
        if (microbatch >= stage.forwarded) complain(s, action, "was not forwarded");
        ++stage.backwarded;
        check_place(s, action, stage.slots, action.slot, "slot");
        empty_place(stage.slots, action.slot);
        if (!is_last(s)) {
            if (stage.output_gradient != microbatch) {
                complain(s, action, "its gradient was not received");
            }
            check_place(s, action, stage.gradients, action.buffer, "buffer");
            empty_place(stage.gradients, action.buffer);
        }
        stage.output_gradient.reset();
        if (stage.input_gradient) complain(s, action, "the gradient before it was not sent");
        if (s > 0) {
            check_buffer(s, action);
            stage.input_gradient = microbatch;
            stage.input_gradient_buffer = action.buffer;
        }
        for (const std::int32_t b : batches_.batches_in(action.microbatch)) {
            BatchProgress* on = batches_.progress(s, b);
            if (on != nullptr) --on->passes_left;
            if (on != nullptr && on->reduced) complain(s, action, "batch ", b, " is reduced");
            if (batches_.is_stepped(s, b)) complain(s, action, "batch ", b, " is already stepped");
        }
        pass_evaluations(stage);
    }

    /// For other stages to reduce the batch too.
    bool waits_for_sum(std::size_t s, const Action& action) const {
        const BatchProgress* on = batches_.progress(s, action.batch);
        return on != nullptr && on->reduced && !on->stepped && !sums_.is_there(action.batch);
    }

    void step(std::size_t s, const Action& action) {
        const std::int32_t b = action.batch;
        if (batches_.is_stepped(s, b)) return complain(s, action, "is stepped a second time");
        if (batches_.find(b)->evaluation) return complain(s, action, "evaluation has no step");
        BatchProgress& on = *batches_.progress(s, b);
        if (on.passes_left != 0) complain(s, action, "backwards are missing");
        if (!joint_ && !batches_.total_known(s, b)) {
            complain(s, action, "its norm has not reached the stage");
        }
        if (joint_ && !on.reduced) complain(s, action, "is not reduced");
        if (joint_ && !sums_.step(first_stage_ + s, b)) {
            complain(s, action, "is stepped out of the order in which batches are reduced");
        }
        on.stepped = true;
    }

    /// The adapter's gradients of the batch before must be gone.
    void reduce(std::size_t s, const Action& action) {
        const std::int32_t b = action.batch;
        BatchProgress* on = batches_.progress(s, b);
        if (!joint_) complain(s, action, "there is one replica alone");
        if (on == nullptr) return complain(s, action, "has left the stage");
        if (on->reduced) complain(s, action, "is reduced a second time");
        if (on->passes_left != 0) complain(s, action, "backwards are missing");
        const std::int32_t before = batches_.find(b)->predecessor;
        if (before >= 0 && !batches_.is_stepped(s, before)) {
            complain(s, action, "batch ", before, " is not stepped yet");
        }
        if (joint_ && !sums_.come(first_stage_ + s, b)) {
            complain(s, action, "is reduced out of the order that is announced");
        }
        on->reduced = true;
    }

    void check_ends(std::size_t s) {
        const StageState& stage = stages_[s];
        if (stage.next_action < stage.actions.size()) {
            complain(s, stage.actions[stage.next_action], "waits for ever");
        } else if (stage.output || stage.input_gradient) {
            findings_->add(stage_name(s), " ends with a tensor that was not sent");
        }
    }

    void check_drained(std::size_t s) {
        const StageState& stage = stages_[s];
        const std::int32_t count = batches_.microbatches();
        if (stage.next_action < stage.actions.size()) return;
        if (stage.forwarded != count || stage.backwarded != count) {
            findings_->add(stage_name(s), " does ", stage.forwarded, " forwards and ",
                           stage.backwarded, " backwards of ", count, " microbatches");
        }
        if (stage.input || stage.output_gradient) {
            findings_->add(stage_name(s), " ends with a tensor that was not used");
        }
        if (!up_[s].empty() || !down_[s].empty()) {
            findings_->add(stage_name(s), " ends with messages that it did not receive");
        }
        for (const auto& [b, batch] : batches_.held()) {
            if (!batch.stages[s].stepped) {
                findings_->add(stage_name(s), " never steps batch ", b);
            }
        }
    }

    void check_peak(std::size_t s, const Window& window) {
        const std::int32_t peak = stages_[s].peak;
        if (peak != window.peak_in_flight[s]) {
            findings_->add(stage_name(s), " has ", peak,
                           " microbatches in flight, the window says ", window.peak_in_flight[s]);
        }
    }

    ReplicaView view_;
    std::string name_;
    bool joint_;  ///< one of several replicas
    SharedSums& sums_;
    std::size_t first_stage_;
    Findings* findings_ = nullptr;
    std::vector<StageState> stages_;
    std::vector<Sent> up_;    ///< to stage s from stage s - 1
    std::vector<Sent> down_;  ///< to stage s from stage s + 1
    StreamBatches batches_;
};

std::int32_t size_of(const std::vector<Microbatch>& microbatches) {
    return static_cast<std::int32_t>(microbatches.size());
}

}  // namespace

struct StreamChecker::State {
    State(const Job& of_job, const Plan& plan) : job(of_job), views(views_of(plan)) {}

    bool continues(const JointWindow& joint) const;
    void begin();
    void run(const JointWindow& joint, Findings& findings);

    const Job& job;
    std::vector<ReplicaView> views;
    std::vector<std::unique_ptr<Execution>> executions;  ///< none between streams
    std::int32_t batches = 0;
    std::vector<std::int32_t> microbatches;  ///< of the replicas
    std::optional<SharedSums> sums;
};

void StreamChecker::State::begin() {
    executions.clear();
    std::size_t stages = 0;
    for (const ReplicaView& view : views) stages += view.replica.stages.size();
    sums.emplace(stages);
    std::size_t first_stage = 0;
    for (std::size_t r = 0; r < views.size(); ++r) {
        executions.push_back(std::make_unique<Execution>(
            views[r], views.size() == 1 ? "" : cat("replica ", r, ", "), *sums, first_stage));
        first_stage += views[r].replica.stages.size();
    }
    batches = 0;
    microbatches.assign(views.size(), 0);
}

bool StreamChecker::State::continues(const JointWindow& joint) const {
    if (executions.empty() || joint.common().first_batch != batches) return false;
    for (std::size_t r = 0; r < views.size(); ++r) {
        if (joint.replicas[r].first_microbatch != microbatches[r]) return false;
    }
    return true;
}

void StreamChecker::State::run(const JointWindow& joint, Findings& findings) {
    sums->announce(joint.reductions);
    for (bool progress = true; progress;) {
        progress = false;
        for (const auto& execution : executions) progress = execution->run() || progress;
    }
    for (std::size_t r = 0; r < views.size(); ++r) executions[r]->end(joint.replicas[r]);
    if (views.size() > 1) check_reduced(joint, *sums, findings);
}

StreamChecker::StreamChecker(const Job& job, const Plan& plan)
    : state_(std::make_unique<State>(job, plan)) {}
StreamChecker::~StreamChecker() = default;

std::vector<std::string> StreamChecker::check(const JointWindow& joint) {
    Findings findings;
    State& state = *state_;
    if (joint.replicas.size() != state.views.size()) {
        findings.add("windows of ", joint.replicas.size(), " replicas, the plan has ",
                     state.views.size());
        return findings.take();
    }
    const Window& window = joint.common();
    if (window.begins) state.begin();
    if (!state.continues(joint)) {
        findings.add("the window does not continue the one before");
        return findings.take();
    }
    check_agreement(joint, findings);
    std::vector<SegmentBatches> batch_of;
    bool valid = true;
    for (std::size_t r = 0; r < state.views.size(); ++r) {
        const Window& other = joint.replicas[r];
        valid = check_references(state.views[r], other, findings) && valid;
        batch_of.push_back(find_segment_batches(other, findings));
    }
    if (valid && findings.empty()) {
        check_contents(state.job, state.views, joint, batch_of, findings);
        for (std::size_t r = 0; r < state.views.size(); ++r) {
            state.executions[r]->begin(joint.replicas[r], batch_of[r], findings);
        }
        state.run(joint, findings);
    }
    state.batches += static_cast<std::int32_t>(window.batches.size());
    for (std::size_t r = 0; r < state.views.size(); ++r) {
        state.microbatches[r] += size_of(joint.replicas[r].microbatches);
    }
    if (window.drains) state.executions.clear();
    return findings.take();
}

std::size_t StreamChecker::size() const {
    std::size_t size = state_->sums ? state_->sums->size() : 0;
    for (const auto& execution : state_->executions) size += execution->size();
    return size;
}

std::vector<std::string> check_window(const Job& job, const Plan& plan, const JointWindow& joint) {
    return StreamChecker(job, plan).check(joint);
}

std::vector<std::string> check_window(const Job& job, const Plan& plan, const Window& window) {
    return check_window(job, plan, JointWindow{{window}, {}});
}

}  // namespace loratrain
