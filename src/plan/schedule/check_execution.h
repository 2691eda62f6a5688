#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/ids.h"
#include "base/text.h"
#include "plan/action_traits.h"
#include "plan/findings.h"
#include "plan/memory/memory_model.h"
#include "plan/plan.h"
#include "plan/replica_view.h"
#include "plan/schedule/check_contents.h"
#include "plan/schedule/check_joint.h"

namespace loratrain {

/// A batch on one stage.
struct BatchProgress {
    std::int32_t passes_left = 0;   ///< backwards, of an evaluation forwards
    bool partial_received = false;  ///< sums of the stages after
    bool total_received = false;    ///< from the stage before
    bool reduced = false;           ///< summed over the replicas
    bool stepped = false;           ///< an evaluation: has had all its forwards
    bool left = false;  ///< stepped before the newest window: nothing may name it any more
};

/// A batch that not all stages have left behind.
struct BatchState {
    AdapterId adapter{};
    bool evaluation = false;
    MicrobatchId last_microbatch{};
    std::int32_t predecessor = -1;  ///< of the same adapter, evaluations included, or -1
    std::vector<BatchProgress> stages;
};

/// How far the batches of a stream are on each stage, by the stream's numbers; for the checker
/// (check_window.h). What all stages are done with leaves as the next window comes.
class StreamBatches {
  public:
    explicit StreamBatches(std::size_t stages) : stages_(stages) {}

    /// The next window; microbatches below `backwarded` have been backwarded on all stages.
    void append(const Window& window, const SegmentBatches& batch_of, std::int32_t backwarded);

    /// Null when the stage has left the batch behind.
    BatchProgress* progress(std::size_t stage, std::int32_t batch);
    const BatchProgress* progress(std::size_t stage, std::int32_t batch) const;

    bool is_stepped(std::size_t stage, std::int32_t batch) const;
    /// The batch's squared gradients of this stage and those above are there.
    bool sum_complete(std::size_t stage, std::int32_t batch) const;
    /// Its total over all stages is: the first stage adds its own sums to what came down, the
    /// others are reported.
    bool total_known(std::size_t stage, std::int32_t batch) const;

    /// Null when all stages have left it behind.
    const BatchState* find(std::int32_t batch) const;
    const std::map<std::int32_t, BatchState>& held() const { return batches_; }

    /// Batches of a microbatch that is under way.
    const std::vector<std::int32_t>& batches_in(MicrobatchId id) const;
    /// Whether a microbatch that is under way is one of evaluations.
    bool evaluates(MicrobatchId id) const;
    /// Microbatches so far.
    std::int32_t microbatches() const { return microbatches_.end(); }

    std::size_t size() const { return batches_.size() + microbatches_.size() + newest_.size(); }

  private:
    struct OfMicrobatch {
        std::vector<std::int32_t> batches;
        bool evaluation = false;
    };

    void leave(std::int32_t backwarded);

    std::size_t stages_;
    std::int32_t next_ = 0;
    std::map<std::int32_t, BatchState> batches_;
    Numbered<OfMicrobatch> microbatches_;
    std::map<AdapterId, std::int32_t> newest_;  ///< its last batch so far
};

/// What lies where; empty or the microbatch.
using Places = std::vector<std::optional<std::int32_t>>;

/// One stage while its action list is executed symbolically.
struct CheckedStage {
    CheckedStage(const ReplicaView& view, std::size_t stage)
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
class StreamExecution {
  public:
    /// `name`: what findings about it begin with. `sums`: of all replicas, among whose stages its
    /// own come behind `first_stage` others; outlives it.
    StreamExecution(const ReplicaView& view, std::string name, SharedSums& sums,
                    std::size_t first_stage)
        : view_(view),
          name_(std::move(name)),
          joint_(view.plan.replicas.size() > 1),
          sums_(sums),
          first_stage_(first_stage),
          up_(view.replica.stages.size()),
          down_(up_.size()),
          batches_(up_.size()) {
        for (std::size_t s = 0; s < up_.size(); ++s) stages_.emplace_back(view, s);
    }

    void begin(const Window& window, const SegmentBatches& batch_of, Findings& findings);

    /// As far as it comes without other replicas; whether that is any further.
    bool run();

    void end(const Window& window);

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

    void append(const Window& window, const SegmentBatches& batch_of);

    /// Executes the next action of a stage; false when there is none or it has to wait.
    bool advance(std::size_t s);
    bool execute(std::size_t s, const Action& action);
    bool receive(std::size_t s, const Action& action, Sent& messages);
    void note_received(std::size_t s, const Action& action, std::int32_t b);

    /// The neighbour that the message goes to or comes from.
    void check_peer(std::size_t s, const Action& action);

    /// Slot or buffer number `at` gets the action's microbatch; what was there must be done with.
    void take_place(std::size_t s, const Action& action, Places& places, std::int32_t at,
                    const char* what);
    /// It must be there.
    void check_place(std::size_t s, const Action& action, const Places& places, std::int32_t at,
                     const char* what);
    static void empty_place(Places& places, std::int32_t at);
    static std::size_t place(std::int32_t i) { return static_cast<std::size_t>(i); }

    void send_up(std::size_t s, const Action& action);
    void send_down(std::size_t s, const Action& action);
    void check_buffer(std::size_t s, const Action& action);
    void take_produced(std::size_t s, const Action& action, std::optional<std::int32_t>& produced);

    /// A message has room for one batch per adapter.
    void check_carried(std::size_t s, const Action& action);
    void forward(std::size_t s, const Action& action);
    bool evaluates(const Action& action) const { return batches_.evaluates(action.microbatch); }

    /// An evaluation is over with its last forward: its adapter's next batch may come.
    void note_evaluated(std::size_t s, std::int32_t b);

    /// They count as backwarded once they, and all that was before them, are over.
    void pass_evaluations(CheckedStage& stage) const;

    /// Weights seen by a forward of batch b: all steps before it done, its own not yet.
    void check_fresh(std::size_t s, const Action& action, std::int32_t b);
    void backward(std::size_t s, const Action& action);

    /// For other stages to reduce the batch too.
    bool waits_for_sum(std::size_t s, const Action& action) const;
    void step(std::size_t s, const Action& action);

    /// The adapter's gradients of the batch before must be gone.
    void reduce(std::size_t s, const Action& action);
    void check_ends(std::size_t s);
    void check_drained(std::size_t s);
    void check_peak(std::size_t s, const Window& window);

    ReplicaView view_;
    std::string name_;
    bool joint_;  ///< one of several replicas
    SharedSums& sums_;
    std::size_t first_stage_;
    Findings* findings_ = nullptr;
    std::vector<CheckedStage> stages_;
    std::vector<Sent> up_;    ///< to stage s from stage s - 1
    std::vector<Sent> down_;  ///< to stage s from stage s + 1
    StreamBatches batches_;
};

}  // namespace loratrain
