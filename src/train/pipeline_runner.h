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

/// What the first stage learns when the last backward of a global batch is through.
struct BatchResult {
    BatchPlan batch;
    double loss_sum = 0.0;    ///< of its samples; divided by the batch's denominator: the loss
    double grad_sumsq = 0.0;  ///< over all stages, before clipping; not finite = update skipped
};

/// Interprets one stage's action lists with a Stage and a Communicator; decides nothing itself. The
/// lanes of a stage each do, side by side: a lane's neighbours are the same lane of other stages.
/// Says in base/activity.h what it is at. In the steady state the host does not wait for the
/// backend: sums are read late.
class PipelineRunner {
  public:
    /// `exchange`: where there are several replicas, else null; outlives the runner.
    PipelineRunner(const Job& job, const ReplicaView& view, std::size_t stage_index, Stage& stage,
                   Communicator& communicator, Backend& backend,
                   GradientExchange* exchange = nullptr);

    ~PipelineRunner();
    PipelineRunner(const PipelineRunner&) = delete;
    PipelineRunner& operator=(const PipelineRunner&) = delete;

    /// Called with what batches and evaluations came to, and between actions and while one waits.
    struct Hooks {
        std::function<void(const BatchResult&)> on_batch = {};
        std::function<void()> between_actions = {};
        /// Also of steps that train on pairs (EvalResult::training).
        std::function<void(const EvalResult&)> on_evaluation = {};
        /// The backend has an optimizer step before it, and none of the adapter's later batches.
        std::function<void(const BatchPlan&)> on_step = {};
        /// Of a stream of evaluations: this is called on the last stage with the z of samples
        /// (ReferenceLosses) instead of on_evaluation.
        std::function<void(std::span<const SampleRef>, std::span<const double>)> on_reference = {};
        /// Rank 0: whether the window that begins has reached a rank, which can take it then
        /// without rank 0. Empty on other ranks.
        std::function<bool(int rank)> has_window = {};
        bool base_alone = false;  ///< evaluations are of the base model without adapters
    };

    /// Performs the actions of a window; microbatches come from `loader` (started on this window).
    /// What is under way at its end goes on with the stream's next window, until one drains.
    /// `hooks` are those of the window that begins: on_batch is called on the first stage, with
    /// several replicas on all stages as a batch is stepped, on_evaluation on the last, in the
    /// order in which batches end, once their sums have arrived.
    void run(const Window& window, Loader& loader, const Hooks& hooks);

    /// Between windows: hooks learn what has come of the one before.
    void go_on_reading() {
        reads_.poll();
        if (!on_device_) communicator_.progress();
    }
    /// To be called before the host waits for the backend in a stream (Communicator::settle).
    void settle() { communicator_.settle(hooks_.between_actions); }
    /// Between two windows: UnderWay::step_to_take.
    std::optional<std::int32_t> step_to_take(AdapterId adapter) const {
        return under_way_.step_to_take(adapter);
    }

    /// Records actions from now on; `recorder` outlives the runner's work.
    void record_with(TraceRecorder& recorder) { recorder_ = &recorder; }

  private:
    /// The messages that a slot or a buffer is used for.
    struct Messages {
        bool free = true;  ///< may be received into
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
    void add_evaluation(MicrobatchId id, const Microbatch& microbatch,
                        std::span<const BatchPlan> batches, const double* nll, const double* wrong);
    void report_step(MicrobatchId id);
    std::int32_t own_replica() const;
    void drain();
    /// A stage may send what the next one receives in the window after this: rank 0, which has yet
    /// to post that, does so meanwhile.
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
    /// The gradient message in the action's one of those buffers.
    TensorView message(const std::vector<Buffer>& buffers, const Action& action) const;
    /// Bytes of a [tokens, H] payload rounded up so that doubles may follow.
    std::size_t payload_bytes(const TensorView& payload) const;
    enum class Tail : std::uint8_t { received, sent };
    /// Copies the carried adapters' sums from a received message's tail, or into one to be sent.
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
    bool window_arrived_ = true;  ///< on every rank, as far as this one has to know
    UnderWay under_way_;
    std::deque<Action> forward_receives_;  ///< not posted yet
    std::deque<Action> backward_receives_;
    std::vector<Messages> forward_;                ///< per activation slot
    std::vector<Messages> backward_;               ///< per gradient buffer
    std::map<AdapterId, EvalResult> evaluations_;  ///< on the last stage, not complete yet
    std::vector<std::int32_t> adapters_;
    std::vector<std::int32_t> places_;
};

}  // namespace loratrain
