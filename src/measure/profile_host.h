#pragma once

#include <array>
#include <cstdint>

#include "backend/backend.h"
#include "model/stage.h"
#include "plan/cost/costs.h"
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
    double new_attention = 0.0;                  ///< as HostCosts'
    double new_rows = 0.0;
    double new_targets = 0.0;
};

/// No term is negative; of one segment alone there is no telling what more of them take.
HostCosts host_costs(const HostTimes& times);

/// Times the host of a GPU on stages without embedding: medians of a few microbatches, each queued
/// on an idle stream, with factors that are new to the stage's augmented matrices: between two
/// microbatches of training adapters step, or others have rows. What shapes take that are new is
/// the difference of the first time and another, until the device is done.
class HostProfile {
  public:
    /// Microbatches of the job's adapters, of so many `tokens`, and fewer. `job`, `view` and
    /// `backend` outlive it; `layers` are those of the stage with layers.
    HostProfile(const Job& job, const ReplicaView& view, std::int64_t tokens, Backend& backend,
                std::int32_t layers);

    /// Returns what a microbatch's forward and backward take together.
    double profile_layers(Stage& stage);
    void profile_new_shapes(Stage& stage);
    void profile_head(Stage& stage);
    void profile_bare(Stage& stage);
    HostCosts costs() const { return host_costs(times_); }

  private:
    Microbatch microbatch(std::int64_t tokens, std::int64_t length, std::size_t adapters) const;
    std::array<QueueTimes, 2> of_one_and_all(Stage& stage) const;
    QueueTimes queue_times(Stage& stage, const Microbatch& microbatch) const;
    double new_shape_seconds(Stage& stage, const Microbatch& microbatch) const;

    const Job& job_;
    ReplicaView view_;
    std::int64_t tokens_;
    std::int64_t longest_;  ///< tokens of a sample
    Backend& backend_;
    HostTimes times_;
};

}  // namespace loratrain
