#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <vector>

#include "comm/communicator.h"
#include "data/loader.h"
#include "measure/trace_recorder.h"
#include "model/stage.h"
#include "train/late_reads.h"

namespace loratrain {

/// What the first stage learns when the last backward of a global batch is through.
struct BatchResult {
    BatchPlan batch;
    double loss_sum = 0.0;    ///< of its samples; divided by the batch's denominator: the loss
    double grad_sumsq = 0.0;  ///< over all stages, before clipping; not finite = update skipped
};

/// Sums of an evaluation window per batch (one batch per adapter), on the last stage.
struct EvalSums {
    double loss_sum = 0.0;
    std::int64_t exact_samples = 0;  ///< every target is the argmax (= greedy decoding is exact)
    std::int64_t samples = 0;
};

/// Interprets one stage's action lists with a Stage and a Communicator; decides nothing itself.
/// Says in base/activity.h what it is at. In the steady state the host does not wait for the
/// backend: sums are read late.
class PipelineRunner {
  public:
    PipelineRunner(const Job& job, const ReplicaView& view, std::size_t stage_index, Stage& stage,
                   Communicator& communicator, Backend& backend);

    ~PipelineRunner();
    PipelineRunner(const PipelineRunner&) = delete;
    PipelineRunner& operator=(const PipelineRunner&) = delete;

    /// Called with what batches came to, and between actions.
    struct Hooks {
        std::function<void(const BatchResult&)> on_batch;
        std::function<void()> between_actions;
    };

    /// Performs the actions of a window; microbatches come from `loader` (started on this window).
    /// What is under way at its end goes on with the stream's next window, until one drains.
    /// `hooks` are those of the window that begins: on_batch is called on the first stage, in the
    /// order in which batches end, once their sums have arrived. Returns evaluation sums (last
    /// stage, else empty).
    std::vector<EvalSums> run(const Window& window, Loader& loader, const Hooks& hooks);

    /// Records actions from now on; `recorder` outlives the runner's work.
    void record_with(TraceRecorder& recorder) { recorder_ = &recorder; }

  private:
    void begin_stream(const Window& window);
    void append(const Window& window);
    void perform(const Action& action, Loader& loader);
    void post_receives();
    void receive_forward(const Action& action);
    void forward(const Action& action, Loader& loader);
    void send_forward(const Action& action);
    void receive_backward(const Action& action);
    void backward(const Action& action);
    void send_backward(const Action& action);
    void finish_batches(std::int32_t microbatch);
    void report_batch(std::int32_t batch);
    void step(std::int32_t batch);
    void receive_norms(const Action& action);
    void send_norms(const Action& action);
    void collect_evaluation(std::int32_t microbatch);
    void add_evaluation(std::int32_t microbatch, const double* nll, const double* wrong);
    void drain();

    bool first() const { return stage_index_ == 0; }
    bool last() const { return stage_index_ + 1 == view_.replica.stages.size(); }
    int rank_of(std::size_t stage) const { return view_.replica.stages[stage].rank; }
    std::int32_t slot_of(std::int32_t microbatch) const { return microbatch % stage_.slots(); }
    std::int64_t tokens_of(std::int32_t microbatch) const;
    TensorView message(const Buffer& buffer, std::int32_t microbatch) const;
    std::int32_t batch_of(const Segment& segment) const;
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
    bool on_device_;
    LateReads reads_;
    TraceRecorder* recorder_ = nullptr;
    std::vector<Buffer> gradient_in_;
    std::vector<Buffer> gradient_out_;

    Hooks hooks_;
    bool evaluating_ = false;
    std::vector<BatchPlan> batches_;        ///< of the stream
    std::vector<Microbatch> microbatches_;  ///< of the stream
    std::map<std::pair<std::int32_t, std::int32_t>, std::int32_t> batch_index_;
    std::vector<Action> forward_receives_;
    std::vector<Action> backward_receives_;
    std::vector<std::unique_ptr<Transfer>> forward_in_;
    std::vector<std::unique_ptr<Transfer>> backward_in_;
    std::vector<std::unique_ptr<Transfer>> forward_out_;
    std::vector<std::unique_ptr<Transfer>> backward_out_;
    std::unique_ptr<Transfer> norms_out_;
    std::int32_t freed_slots_ = 0;
    std::int32_t backwards_done_ = 0;
    std::int32_t posted_forward_ = 0;
    std::int32_t posted_backward_ = 0;
    std::vector<EvalSums> evaluation_;
    std::vector<std::int32_t> adapters_;
    std::vector<std::int32_t> places_;
};

}  // namespace loratrain
