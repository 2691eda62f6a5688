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

/// Executes the action lists of a window symbolically, to check their order.

/// Progress of a batch on one stage.
struct BatchProgress {
    std::int32_t passes_left = 0;   ///< backwards; for an evaluation forwards
    bool partial_received = false;  ///< sums of later stages are here
    bool total_received = false;    ///< the total is here, from the stage before
    bool reduced = false;           ///< summed over the replicas
    bool stepped = false;           ///< for an evaluation: all forwards are done
    bool left = false;              ///< stepped before the newest window: no action may name it
};

/// A batch that some stage still needs.
struct BatchState {
    AdapterId adapter{};
    bool evaluation = false;
    MicrobatchId last_microbatch{};
    std::int32_t predecessor = -1;  ///< of the same adapter, evaluations included, or -1
    std::vector<BatchProgress> stages;
};

/// Progress of a stream's batches on each stage, by the stream's numbers, for the checker
/// (check_window.h). Batches that no stage needs are removed when the next window comes.
class StreamBatches {
  public:
    explicit StreamBatches(std::size_t stages) : stages_(stages) {}

    /// Adds the next window. All stages have backwarded the microbatches below `backwarded`.
    void append(const Window& window, const SegmentBatches& batch_of, std::int32_t backwarded);

    /// Null if the stage does not need the batch any more.
    BatchProgress* progress(std::size_t stage, std::int32_t batch);
    const BatchProgress* progress(std::size_t stage, std::int32_t batch) const;

    bool is_stepped(std::size_t stage, std::int32_t batch) const;
    /// True if the batch's squared gradients of this and all later stages are there.
    bool sum_complete(std::size_t stage, std::int32_t batch) const;
    /// True if the total over all stages is there: the first stage computes it, the others receive
    /// it.
    bool total_known(std::size_t stage, std::int32_t batch) const;

    /// Null if no stage needs the batch any more.
    const BatchState* find(std::int32_t batch) const;
    const std::map<std::int32_t, BatchState>& held() const { return batches_; }

    /// Batches of a microbatch in flight.
    const std::vector<std::int32_t>& batches_in(MicrobatchId id) const;
    /// True if a microbatch in flight is of evaluations.
    bool evaluates(MicrobatchId id) const;
    /// Number of microbatches so far.
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
    std::map<AdapterId, std::int32_t> newest_;  ///< each adapter's last batch so far
};

/// Slots or buffers: the microbatch in each, or empty.
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
    Places slots;      ///< from input to backward; evaluation: to the sending of its output
    Places gradients;  ///< received, not backwarded
};

/// Symbolic execution of one replica's stages over a stream. All numbers are the stream's.
class StreamExecution {
  public:
    /// `name`: findings begin with it. `sums`: shared by all replicas; outlives this.
    /// `first_stage`: number of its first stage among those of all replicas.
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

    /// Executes actions until all stages wait for other replicas. True if it has executed any.
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

    /// The peer has to be the neighbour.
    void check_peer(std::size_t s, const Action& action);

    /// Slot or buffer number `at` gets the action's microbatch. It has to be free.
    void take_place(std::size_t s, const Action& action, Places& places, std::int32_t at,
                    const char* what);
    /// Slot or buffer number `at` has to hold the action's microbatch.
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

    /// Ends an evaluation with its last forward: the adapter's next batch may come.
    void note_evaluated(std::size_t s, std::int32_t b);

    /// Evaluations count as backwarded once they, and all microbatches before them, are over.
    void pass_evaluations(CheckedStage& stage) const;

    /// A forward of batch b has to see weights after all earlier steps and before its own.
    void check_fresh(std::size_t s, const Action& action, std::int32_t b);
    void backward(std::size_t s, const Action& action);

    /// True if the stage waits until all stages have reduced the batch.
    bool waits_for_sum(std::size_t s, const Action& action) const;
    void step(std::size_t s, const Action& action);

    /// The adapter's batch before has to be stepped.
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
