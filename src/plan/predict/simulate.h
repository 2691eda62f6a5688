#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <vector>

#include "base/ids.h"
#include "plan/cost/met_shapes.h"
#include "plan/costs.h"
#include "plan/replica_view.h"

namespace loratrain {

/// A stage's computation: kind is forward, backward or step.
struct TimelineSpan {
    ActionKind kind{};
    std::int32_t microbatch = -1;  ///< index into Timeline::microbatches; -1 with step
    std::int32_t batch = -1;       ///< index into Timeline::batches, with step
    double start = 0.0;            ///< seconds since the first action
    double end = 0.0;
};

/// What came of playing windows. Microbatches and batches are those of all windows, one after the
/// other; first_microbatch and last_microbatch of a batch index them, of the first replica.
struct Timeline {
    /// Of all replicas, one after the other; spans in order of time.
    std::vector<std::vector<TimelineSpan>> stages;
    std::vector<Microbatch> microbatches;
    std::vector<BatchPlan> batches;
    double exchange_seconds = 0.0;    ///< in which replicas sum gradients, hidden or not
    double full_speed_seconds = 0.0;  ///< of all spans, had no stage slowed another down

    double makespan() const;  ///< end of the last span; 0 without any
    double busy(std::size_t stage) const;
    /// Share of the makespan in which a stage computes nothing; 0 without a makespan.
    double idle_share(std::size_t stage) const;
    double idle_share() const;  ///< mean over the stages
    /// How many times longer the spans are for sharing processors; 1 without any.
    double slowdown() const;
    std::int64_t tokens() const;       ///< trained, without padding
    double tokens_per_second() const;  ///< 0 without a makespan
};

/// Plays action lists, the same that the runtime interprets, in the time of a cost model. A stage
/// does one thing after the other; stages of one host share its processors
/// (CostModel::full_speed_ranks). A send takes a stage no time: messages travel beside computation,
/// one after the other per direction between two neighbours (LinkCost::per_byte, of one host or
/// between hosts), and arrive LinkCost::fixed later; a receive waits until its message is there.
/// Sums over replicas, between hosts where these are on several, travel
/// beside computation too, one after the other: each begins when all stages have come to its
/// reduce and looked, as those that compute do between two layers, and takes exchange_seconds(); a
/// step waits for it. Pure and deterministic.
class Simulator {
  public:
    /// All replicas, with the plan's costs. `job` and `plan` are kept by reference.
    Simulator(const Job& job, const Plan& plan);
    /// One alone.
    Simulator(const Job& job, const ReplicaView& view, const CostModel& costs);

    /// A forward whose shapes are new to its stage takes longer from now on (HostCosts); `met`,
    /// which learns them, outlives the simulator. Without it, shapes cost nothing.
    void count_new_shapes(MetShapes& met) { met_shapes_ = &met; }

    /// Continues every stage with its list of the window, up to the time at which the first stage
    /// has nothing more to do: what it does next may slow the others down. Throws Error when a
    /// receive meets a message that it did not expect.
    void add(const JointWindow& joint);
    void add(const Window& window) { add(JointWindow{{window}, {}}); }

    /// Seconds since the first action up to which it has played.
    double reached() const { return now_; }

    /// Plays what is left, then gives it; a window added later goes on from there. Throws Error
    /// when actions wait that no window has served.
    const Timeline& timeline();

  private:
    struct Message {
        Channel channel{};
        std::int32_t microbatch = -1;  ///< -1 = norms
        double arrival = 0.0;
    };
    struct Link {
        std::deque<Message> under_way;
        double free_at = 0.0;
    };
    /// A sum over replicas.
    struct Sum {
        std::size_t stages = 0;  ///< that have come to it
        double seconds = 0.0;    ///< of the slowest
        double end = 0.0;        ///< once all have come
    };
    struct Replica {
        ReplicaView view;
        std::size_t first_stage = 0;
        std::vector<MicrobatchId> places;  ///< of the stream's microbatches, in the timeline
    };
    struct StageState {
        std::size_t replica = 0;
        std::size_t of_replica = 0;  ///< which stage of it
        std::size_t host = 0;
        CostModel costs;  ///< the replica's, with its lanes' sums between hosts
        std::deque<Action> actions;
        bool computing = false;
        double left = 0.0;   ///< seconds at full speed of what is being computed
        double layer = 0.0;  ///< of a layer of it; 0 of a step
        double wakes = 0.0;  ///< when the message arrives that is waited for; only later than now
        Link up;             ///< to the next stage
        Link down;           ///< to the stage before
        bool idle() const { return !computing && actions.empty(); }
    };

    void add_replica(const ReplicaView& view, const CostModel& costs);
    void queue_actions(const JointWindow& joint);
    void queue_actions(Replica& replica, const Window& window);
    void reduce(std::size_t stage, const Action& action);
    double until_all_look() const;
    bool on_one_host() const { return computing_.size() == 1; }
    bool sum_is_there(std::size_t stage, const Action& action);
    void advance(bool to_the_end);
    void start_what_can();
    bool next_event();
    bool perform(std::size_t stage, const Action& action);
    void compute(std::size_t stage, const Action& action);
    void send(std::size_t stage, std::size_t other, Link& link, const Action& action);
    bool receive(std::size_t stage, Link& link, const Action& action);
    double speed(std::size_t host) const;
    const Replica& replica_of(std::size_t stage) const { return replicas_[stages_[stage].replica]; }
    double parameters_of(std::size_t stage, std::int32_t batch) const;
    double seconds_of(std::size_t stage, const Action& action) const;
    double stall_of(std::size_t stage, const Action& action);
    double bytes_of(std::size_t stage, const Action& action) const;

    const Job& job_;
    std::vector<Replica> replicas_;
    double now_ = 0.0;
    std::vector<StageState> stages_;
    std::vector<int> computing_;        ///< ranks per host
    std::map<std::int32_t, Sum> sums_;  ///< by batch
    double sums_end_ = 0.0;             ///< of those begun
    std::vector<AdapterLoads> loads_;
    std::int32_t stream_batches_ = 0;  ///< before the stream of the newest window
    Timeline timeline_;
    MetShapes* met_shapes_ = nullptr;
};

}  // namespace loratrain
