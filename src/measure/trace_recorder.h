#pragma once

#include <array>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "backend/backend.h"
#include "backend/readback.h"
#include "base/activity.h"
#include "comm/communicator.h"
#include "io/run_files/trace_file.h"
#include "measure/cost_observer.h"
#include "measure/phase_labels.h"
#include "model/activation_offload.h"
#include "model/layer_stream.h"
#include "plan/cost/cost_model.h"
#include "plan/cost/met_shapes.h"
#include "plan/replica_view.h"
#include "plan/schedule/under_way.h"

namespace loratrain {

/// The clock of a stage while it trains. It marks points in the time of the backend's stream and
/// reads them a window late, so that nothing waits for the stream. Three things come from them:
/// - spans for trace.json (logging.trace);
/// - observed costs of microbatches (CostObserver). On a GPU an observation includes the time in
///   which the stream stands still behind a microbatch because the host is late;
/// - the account of the run: the time from a point to the next belongs to one phase (PhaseLabels).
class TraceRecorder : private activity::Listener {
  public:
    /// Spans kept at most; later ones are dropped.
    static constexpr std::size_t most_spans = 20000;

    /// `keep_spans`: logging.trace. `lane`: this rank's in the stage.
    TraceRecorder(const Job& job, const ReplicaView& view, std::size_t stage_index,
                  Backend& backend, bool keep_spans, std::int32_t lane = 0);
    ~TraceRecorder() override;
    TraceRecorder(const TraceRecorder&) = delete;
    TraceRecorder& operator=(const TraceRecorder&) = delete;

    /// Keeps spans of transfers too, category "transfer": "layer 7" for weights that stream,
    /// "offload 7" and "fetch 7" for activations that go to the host and back. Arguments are null
    /// if the stage has no such transfers, and outlive the recorder. Call before set_zero().
    void record_transfers(LayerStream* weights, ActivationOffload* activations) {
        if (!keep_spans_) return;
        weights_ = weights;
        activations_ = activations;
    }
    /// Sets time zero of the spans and the account. Call on all ranks at the same moment, with an
    /// idle stream.
    void set_zero();
    /// From now on the account has what the main thread does beside actions (base/activity.h), too.
    void follow_activity();
    /// A window begins; actions belong to it until the next one.
    void start(const Window& window);
    /// An action begins or ends. `under_way` resolves the action's numbers.
    void begin(const Action& action, const UnderWay& under_way);
    void end();
    /// A wait for a message begins or ends, inside an action or between two.
    void begin_wait();
    void end_wait();

    /// Waits for the stream and reads all that is recorded.
    void settle();
    std::vector<TraceSpan> spans() const;
    /// Seconds of all actions read so far, without their waits.
    double computed_seconds() const { return computed_seconds_; }
    CostObserver& observer() { return observer_; }
    /// Since set_zero(), as far as it has been read.
    const PhaseAccount& account() const { return account_; }

  private:
    struct Share {
        AdapterId adapter{};
        std::int64_t tokens = 0;
    };
    /// An action or a wait, as spans tell of it.
    struct Doing {
        ActionKind kind{};
        bool wait = false;
        bool evaluation = false;
        std::int32_t number = 0;    ///< of the microbatch since the start of the trace, or step
        std::vector<Share> shares;  ///< where spans are kept
    };
    /// Between two points of the clock.
    struct Entry {
        Doing doing;
        bool new_shapes = false;  ///< which the host has to deal with first
        AdapterLoads load;
        std::size_t first = 0;  ///< points
        std::size_t last = 0;
    };
    /// Becomes a span, whose words take time, when spans are asked for.
    struct Kept {
        Doing doing;
        double start = 0.0;
        double end = 0.0;
    };
    struct WindowRecord {
        std::unique_ptr<StreamClock> clock;
        std::vector<RunPhase> phases;  ///< from each point on
        std::vector<Entry> entries;
    };

    /// What a layer's attention and the rest of it take in a pass.
    struct KindLines {
        CostLine attention;
        CostLine linears;
    };

    void changed(const activity::State& state) override;
    std::size_t mark();
    void add_work(const AdapterLoads& load, ActionKind kind);
    void read(WindowRecord& record);
    void read_transfers();
    void use(const TransferRecord::Transfer& transfer, const char* word);
    void use(Entry& entry, double start, double end);
    TraceSpan span_of(const Kept& kept) const;
    void observe(const Entry& entry, double seconds);
    static std::size_t next_start(const std::vector<Entry>& entries, std::size_t i);
    void describe(const Action& action, const UnderWay& under_way, Entry& entry);
    bool has_new_shapes(ActionKind kind, const Microbatch& microbatch);
    bool keeping() const { return keep_spans_ && kept_.size() + transfers_.size() < most_spans; }

    const Job& job_;
    ReplicaView view_;
    AttentionSpan span_;
    std::int32_t rank_;
    bool keep_spans_;
    bool host_runs_ahead_;  ///< of the device
    StagePlan stage_;
    std::array<MetShapes, 2> met_;  ///< by forwards, by backwards
    std::int32_t stream_microbatches_ = 0;
    std::int32_t microbatches_before_ = 0;  ///< in streams before
    WindowRecord now_;
    WindowRecord before_;
    double start_of_before_ = 0.0;  ///< seconds since zero
    static constexpr std::size_t none = static_cast<std::size_t>(-1);
    std::size_t open_ = none;  ///< entry of the action under way
    PhaseLabels labels_;
    bool follows_ = false;  ///< it listens to the main thread
    PhaseAccount account_;
    KindLines forward_lines_;
    KindLines backward_lines_;  ///< with what is recomputed
    int observed_ = 0;
    double computed_seconds_ = 0.0;
    std::vector<Kept> kept_;
    std::vector<TraceSpan> transfers_;
    LayerStream* weights_ = nullptr;
    ActivationOffload* activations_ = nullptr;
    CostObserver observer_;
};

/// An action under way, as long as the object lives; `recorder` may be null.
class RecordedAction {
  public:
    RecordedAction(TraceRecorder* recorder, const Action& action, const UnderWay& under_way)
        : recorder_(recorder) {
        if (recorder_ != nullptr) recorder_->begin(action, under_way);
    }
    ~RecordedAction() {
        if (recorder_ != nullptr) recorder_->end();
    }
    RecordedAction(const RecordedAction&) = delete;
    RecordedAction& operator=(const RecordedAction&) = delete;

  private:
    TraceRecorder* recorder_;
};

/// Wraps a communicator and records its waits: how long the stream stands still for a message.
class RecordingCommunicator final : public Communicator {
  public:
    RecordingCommunicator(Communicator& inner, TraceRecorder& recorder)
        : inner_(inner), recorder_(recorder) {}

    std::unique_ptr<Transfer> send(const void* data, std::size_t bytes, int target,
                                   Channel channel) override {
        return std::make_unique<Recorded>(inner_.send(data, bytes, target, channel), recorder_);
    }
    std::unique_ptr<Transfer> receive(void* data, std::size_t bytes, int source,
                                      Channel channel) override {
        return std::make_unique<Recorded>(inner_.receive(data, bytes, source, channel), recorder_);
    }
    void settle(const std::function<void()>& meanwhile) override { inner_.settle(meanwhile); }
    void progress() override { inner_.progress(); }
    void check() override { inner_.check(); }

  private:
    class Recorded final : public Transfer {
      public:
        Recorded(std::unique_ptr<Transfer> inner, TraceRecorder& recorder)
            : inner_(std::move(inner)), recorder_(recorder) {}
        using Transfer::wait;
        void wait(const std::function<void()>& meanwhile) override {
            recorder_.begin_wait();
            inner_->wait(meanwhile);
            recorder_.end_wait();
        }

      private:
        std::unique_ptr<Transfer> inner_;
        TraceRecorder& recorder_;
    };

    Communicator& inner_;
    TraceRecorder& recorder_;
};

}  // namespace loratrain
