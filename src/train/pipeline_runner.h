#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "comm/communicator.h"
#include "comm/waiting.h"
#include "data/loader.h"
#include "measure/trace_recorder.h"
#include "model/stage.h"
#include "plan/schedule/under_way.h"
#include "train/eval_result.h"
#include "train/gradient_exchange.h"
#include "train/late_reads.h"

namespace loratrain {

/// Runs the action list of a stage.

/// Result of a global batch, known on the first stage after the batch's last backward.
struct BatchResult {
    BatchPlan batch;
    double loss_sum = 0.0;    ///< over samples; loss = loss_sum / batch.denominator
    double grad_sumsq = 0.0;  ///< over all stages, before clipping; not finite = update skipped
};

/// Interprets the action lists of one stage with a Stage and a Communicator; decides nothing
/// itself. Each lane of a stage has a runner; its neighbours are the same lane of other stages.
/// Reports its current action to base/activity.h. In the steady state the host does not wait for
/// the backend: sums are read late (LateReads).
class PipelineRunner {
  public:
    /// `exchange`: null with one replica. All arguments outlive the runner.
    PipelineRunner(const Job& job, const ReplicaView& view, std::size_t stage_index, Stage& stage,
                   Communicator& communicator, Backend& backend,
                   GradientExchange* exchange = nullptr);

    ~PipelineRunner();
    PipelineRunner(const PipelineRunner&) = delete;
    PipelineRunner& operator=(const PipelineRunner&) = delete;

    /// Callbacks with results of batches and evaluations. between_actions is called between actions
    /// and often while one waits.
    struct Hooks {
        std::function<void(const BatchResult&)> on_batch = {};
        std::function<void()> between_actions = {};
        /// Also called with details of training steps (EvalResult::training).
        std::function<void(const EvalResult&)> on_evaluation = {};
        /// The optimizer step is queued on the backend; no later batch of the adapter is.
        std::function<void(const BatchPlan&)> on_step = {};
        /// In a stream of evaluations, on the last stage, instead of on_evaluation: a sample and
        /// its ReferenceValues.
        std::function<void(const SampleRef&, std::span<const double>)> on_reference = {};
        /// Rank 0: true if a rank has received the window that begins. Empty on other ranks.
        std::function<bool(int rank)> has_window = {};
        bool base_alone = false;  ///< evaluate the base model without adapters
    };

    /// Performs the actions of a window. `loader` has been started on it. Work in flight at its end
    /// continues with the stream's next window, until one drains. `hooks`: those of a stream's
    /// first window are the stream's. on_batch is called on the first stage, with several replicas
    /// on all stages when a batch is stepped; on_evaluation on the last stage. Both are called in
    /// the order in which batches end, once their sums have arrived.
    void run(const Window& window, Loader& loader, const Hooks& hooks);

    /// Between windows: calls the hooks with results of the last window.
    void go_on_reading() {
        reads_.poll();
        if (!on_device_) communicator_.progress();
    }
    /// Call it in a stream before the host waits for the backend (Communicator::settle).
    void settle() { communicator_.settle(hooks_.between_actions); }
    /// Between two windows: UnderWay::step_to_take.
    std::optional<std::int32_t> step_to_take(AdapterId adapter) const {
        return under_way_.step_to_take(adapter);
    }

    /// Records actions from now on; `recorder` outlives the runner's work.
    void record_with(TraceRecorder& recorder) { recorder_ = &recorder; }

  private:
    /// The messages of a slot or a buffer.
    struct Messages {
        bool free = true;  ///< a message may be received into it
        std::unique_ptr<Transfer> in;
        std::unique_ptr<Transfer> out;
    };

    void begin_stream();
    void wait_for_lanes();
    void stay_near();
    bool lanes_have_window(const ReplicaPlan& replica, std::size_t stage) const;
    bool all_have_window() const;
    template <class Condition>
    void wait_until(const Condition& holds);
    void expect_pass(std::span<const Action> later);
    void perform(const Action& action, Loader& loader);
    void post_receives();
    void receive_forward(const Action& action);
    void forward(const Action& action, Loader& loader);
    void send_forward(const Action& action);
    void receive_backward(const Action& action);
    void backward(const Action& action);
    void send_backward(const Action& action);
    void finish_batches(MicrobatchId microbatch);
    void report_batch(const BatchPlan& batch);
    void step(std::int32_t batch);
    void reduce(std::int32_t batch);
    void finish_reduce(std::int32_t batch);
    void receive_norms(const Action& action);
    void send_norms(const Action& action);
    void collect_evaluation(MicrobatchId id);
    void collect_references(const Microbatch& microbatch);
    /// References of rollouts are of targets.
    bool refers_by_target(const Microbatch& microbatch) const;
    void add_evaluation(MicrobatchId id, const Microbatch& microbatch,
                        std::span<const BatchPlan> batches, const double* nll, const double* wrong);
    void report_step(MicrobatchId id);
    std::int32_t own_replica() const;
    void drain();
    /// The receiver may need the next window first, so rank 0 posts it meanwhile (between_actions).
    void wait_for(Transfer& transfer) { transfer.wait(hooks_.between_actions); }

    bool first() const { return stage_index_ == 0; }
    bool last() const { return stage_index_ + 1 == view_.replica.stages.size(); }
    Messages& forward_on(const Action& action) {
        return forward_[static_cast<std::size_t>(action.slot)];
    }
    Messages& backward_on(const Action& action) {
        return backward_[static_cast<std::size_t>(action.buffer)];
    }
    /// The rank at the other end of this lane's message.
    int peer_of(const Action& action) const { return action.peer + stage_.lane(); }
    std::int64_t tokens_of(const Action& action) const;
    /// The gradient message in the action's buffer.
    TensorView message(const std::vector<Buffer>& buffers, const Action& action) const;
    /// Bytes of a [tokens, H] payload, rounded up so that doubles may follow.
    std::size_t payload_bytes(const TensorView& payload) const;
    enum class Tail : std::uint8_t { received, sent };
    /// Copies the carried adapters' sums from the tail of a received message, or to one that is
    /// sent.
    void move_tail(Tail direction, void* tail, const Action& action,
                   std::initializer_list<double*> sums);
    const std::vector<std::int32_t>& carried_adapters(const Action& action);

    const Job& job_;
    ReplicaView view_;
    std::size_t stage_index_;
    Stage& stage_;
    Communicator& communicator_;
    Backend& backend_;
    GradientExchange* exchange_;
    std::optional<WhileWaiting> exchanging_;
    bool on_device_;
    LateReads reads_;
    TraceRecorder* recorder_ = nullptr;
    std::vector<Buffer> gradient_in_;
    std::vector<Buffer> gradient_out_;

    Hooks hooks_;
    bool window_arrived_ = true;  ///< every rank that matters to this one has the window
    UnderWay under_way_;
    std::deque<Action> forward_receives_;  ///< not posted yet
    std::deque<Action> backward_receives_;
    std::vector<Messages> forward_;                ///< per activation slot
    std::vector<Messages> backward_;               ///< per gradient buffer
    std::map<AdapterId, EvalResult> evaluations_;  ///< on the last stage; not complete yet
    std::vector<std::int32_t> adapters_;
    std::vector<std::int32_t> places_;
};

}  // namespace loratrain
