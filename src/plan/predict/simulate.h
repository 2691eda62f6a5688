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

/// Simulates the action lists of stages.

/// A computation of a stage. Its kind is forward, backward or step.
struct TimelineSpan {
    ActionKind kind{};
    std::int32_t microbatch = -1;  ///< index into Timeline::microbatches; -1 with step
    std::int32_t batch = -1;       ///< index into Timeline::batches, with step
    double start = 0.0;            ///< seconds since the first action
    double end = 0.0;
};

/// The result of simulated windows. Microbatches and batches are those of all windows, one window
/// after another. first_microbatch and last_microbatch of a batch are indices of microbatches of
/// the first replica.
struct Timeline {
    /// The spans of every stage of all replicas, one replica after another; in order of time.
    std::vector<std::vector<TimelineSpan>> stages;
    std::vector<Microbatch> microbatches;
    std::vector<BatchPlan> batches;
    double exchange_seconds = 0.0;    ///< in which replicas sum gradients, hidden or not
    double full_speed_seconds = 0.0;  ///< of all spans, if no stage had slowed another down

    double makespan() const;  ///< end of the last span; 0 without any
    double busy(std::size_t stage) const;
    /// Share of the makespan in which a stage computes nothing; 0 without a makespan.
    double idle_share(std::size_t stage) const;
    double idle_share() const;  ///< mean over the stages
    /// How many times longer spans take because stages share processors; 1 without spans.
    double slowdown() const;
    std::int64_t tokens() const;       ///< trained, without padding
    double tokens_per_second() const;  ///< 0 without a makespan
};

/// Simulates action lists, the same lists that the runtime interprets, in the time of a cost model.
/// Pure and deterministic.
/// - A stage performs one action after another. Stages of one host share its processors
///   (CostModel::full_speed_ranks).
/// - A send takes a stage no time. Messages travel beside computation, one after another per
///   direction between two neighbours (LinkCost::per_byte, within a host or between hosts), and
///   arrive LinkCost::fixed later. A receive waits until its message is there.
/// - Sums over replicas travel beside computation too, one after another; between hosts if the
///   replicas are on several. A sum begins when all stages have reached its reduce and looked; a
///   stage that computes looks between two layers. It takes exchange_seconds(). A step waits for
///   its sum.
class Simulator {
  public:
    /// Simulates all replicas, with the plan's costs. `job` and `plan` are kept by reference.
    Simulator(const Job& job, const Plan& plan);
    /// Simulates one replica alone.
    Simulator(const Job& job, const ReplicaView& view, const CostModel& costs);

    /// From now on, a forward whose shapes are new to its stage takes longer (HostCosts). `met`
    /// records the shapes and must outlive the simulator. Without this call, new shapes cost
    /// nothing.
    void count_new_shapes(MetShapes& met) { met_shapes_ = &met; }

    /// Adds the window's list of actions to every stage, and simulates up to the time at which the
    /// first stage has nothing more to do: its next actions may slow down the other stages. Throws
    /// Error if a receive meets a message that it did not expect.
    void add(const JointWindow& joint);
    void add(const Window& window) { add(JointWindow{{window}, {}}); }

    /// Simulated time, in seconds since the first action.
    double reached() const { return now_; }

    /// Simulates the remaining actions and returns the timeline. A window added later continues
    /// from there. Throws Error if actions wait for something that no window brings.
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
    /// A sum of gradients over replicas.
    struct Sum {
        std::size_t stages = 0;  ///< that have reached it
        double seconds = 0.0;    ///< of the slowest stage
        double end = 0.0;        ///< set once all stages have reached it
    };
    struct Replica {
        ReplicaView view;
        std::size_t first_stage = 0;
        std::vector<MicrobatchId> places;  ///< of the stream's microbatches in the timeline
    };
    struct StageState {
        std::size_t replica = 0;
        std::size_t of_replica = 0;  ///< index of the stage in its replica
        std::size_t host = 0;
        CostModel costs;  ///< the replica's, with its lanes' sums between hosts
        std::deque<Action> actions;
        bool computing = false;
        double left = 0.0;   ///< remaining seconds of the present computation, at full speed
        double layer = 0.0;  ///< seconds of one layer of the present computation; 0 for a step
        double wakes = 0.0;  ///< when the awaited message arrives; only if later than now
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
    std::vector<int> computing_;        ///< computing ranks per host
    std::map<std::int32_t, Sum> sums_;  ///< by batch
    double sums_end_ = 0.0;             ///< end of the last sum that has begun
    std::vector<AdapterLoads> loads_;
    std::int32_t stream_batches_ = 0;  ///< batches before the stream of the newest window
    Timeline timeline_;
    MetShapes* met_shapes_ = nullptr;
};

}  // namespace loratrain
