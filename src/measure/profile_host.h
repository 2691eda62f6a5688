#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "backend/backend.h"
#include "model/stage.h"
#include "plan/cost/costs.h"
#include "plan/predict/met_shapes.h"
#include "plan/replica_view.h"

namespace loratrain {

/// Seconds that a host takes to queue a microbatch on a stage.
struct QueueTimes {
    double forward = 0.0;
    double backward = 0.0;  ///< 0 on a stage with the head, which has no layers here
};

/// What is measured of microbatches of one adapter and of `segments`.
struct HostTimes {
    std::int32_t layers = 1;  ///< of the stage with layers
    double segments = 1.0;
    std::array<QueueTimes, 2> with_layers{};     ///< one adapter's, all adapters'
    std::array<QueueTimes, 2> without_layers{};  ///< of a stage that has nothing
    double head = 0.0;                           ///< the forward of a stage with the head alone
};

/// No term is negative; of one segment alone there is no telling what more of them take.
HostCosts host_costs(const HostTimes& times);

/// A microbatch that met shapes for the first time.
struct NewShapesTime {
    double graphs = 0.0;         ///< of attention
    double shapes = 0.0;         ///< of GEMMs
    double shares_of_first = 0;  ///< sum of 1 / n of these, with n as of NewShapeLine::seconds()
    double seconds = 0.0;        ///< more than the next time
};

/// What a graph took, the median of microbatches that had nothing else; 0 without any.
double fit_new_attention(std::span<const NewShapesTime> times);
/// Least squares over what took more than its graphs, at `attention` seconds each. No term is
/// negative; of a single one all is taken for `first`.
NewShapeLine fit_new_shapes(std::span<const NewShapesTime> times, double attention);

/// Times the host of a GPU on stages without embedding: medians of a few microbatches, each queued
/// on an idle stream, with factors that are new to the stage's augmented matrices: between two
/// microbatches of training adapters step, or others have rows. What shapes take that are new is
/// the difference of the first time and another, until the device is done.
class HostProfile {
  public:
    /// `largest`: what is queued, of all the job's adapters. `job`, `view` and `backend` outlive
    /// it; `layers` are those of the stage with layers.
    HostProfile(const Job& job, const ReplicaView& view, Microbatch largest, Backend& backend,
                std::int32_t layers);

    /// Calls `work` twice, a forward and a backward of the microbatch on the stage with layers.
    void meet(const Microbatch& microbatch, const std::function<void()>& work);
    /// The same of a forward with so many targets on the stage with the head.
    void meet_targets(std::int64_t targets, const std::function<void()>& work);

    /// Returns what a microbatch's forward and backward take together. Meets two shapes more.
    double profile_layers(Stage& stage);
    void profile_head(Stage& stage);
    void profile_bare(Stage& stage);
    HostCosts costs() const;

  private:
    Microbatch of_one_adapter() const;
    Microbatch of_shorter_samples() const;
    void meet_on(Stage& stage, const Microbatch& microbatch);
    QueueTimes queue_times(Stage& stage, const Microbatch& microbatch) const;
    double first_seconds(const std::function<void()>& work) const;

    const Job& job_;
    ReplicaView view_;
    Microbatch largest_;
    Backend& backend_;
    HostTimes times_;
    std::array<MetShapes, 3> counted_;  ///< graphs, shapes, shares of the first
    std::vector<NewShapesTime> new_rows_;
    std::vector<NewShapesTime> new_targets_;
};

}  // namespace loratrain
