#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <vector>

#include "backend/backend.h"
#include "model/stage.h"
#include "plan/cost/fit_costs.h"
#include "plan/cost/met_shapes.h"
#include "plan/costs.h"
#include "plan/replica_view.h"

namespace loratrain {

/// Seconds that a host takes to queue a microbatch on a stage.
struct QueueTimes {
    double forward = 0.0;
    double backward = 0.0;  ///< 0 on a stage with the head, which has no layers here
};

/// What is measured of microbatches of `segments` adapters.
struct HostTimes {
    std::int32_t layers = 1;  ///< of the stage with layers
    double segments = 1.0;
    QueueTimes with_layers;  ///< all adapters'
    std::array<QueueTimes, 2>
        without_layers{};  ///< of a stage that has nothing: one adapter's, all
    double head = 0.0;     ///< the forward of a stage with the head alone
};

/// No term is negative. What a layer takes more for every adapter is an estimate: to measure it is
/// to make the GPU's libraries meet shapes that training does not have. So is what new shapes take,
/// fitted to four runs of SmolLM2-135M on H200s (tests/bench/RESULTS.md, run_predictions.py); that
/// candidates are timed on larger models for longer is not in it.
HostCosts host_costs(const HostTimes& times);

/// Times the host of a GPU on stages without embedding: medians of a few microbatches, each queued
/// on an idle stream, with factors that are new to the stage's augmented matrices: between two
/// microbatches of training adapters step, or others have rows.
class HostProfile {
  public:
    /// `largest`: what is queued, of all the job's adapters. `job`, `view` and `backend` outlive
    /// it; `layers` are those of the stage with layers.
    HostProfile(const Job& job, const ReplicaView& view, Microbatch largest, Backend& backend,
                std::int32_t layers);

    /// A microbatch has run on the stage with layers for the first time, targets on the stage with
    /// the head. `seconds`: what it took beyond what it takes again, where that was measured;
    /// `chose`: algorithms then, which a run before may have left otherwise.
    void meet(const Microbatch& microbatch, std::optional<double> seconds, bool chose);
    void meet_targets(std::int64_t targets, std::optional<double> seconds, bool chose);
    /// Whether such rows' shape is new: it is to run now, and is not observed (start_shapes.h).
    bool prepares_rows(std::int64_t tokens, std::int64_t width);
    bool prepares_targets(std::int64_t targets);

    /// Returns what a microbatch's forward and backward take together.
    double profile_layers(Stage& stage);
    void profile_head(Stage& stage);
    void profile_bare(Stage& stage);
    /// What was not profiled of bare stages and the head is as in `others`.
    HostCosts costs(const HostCosts& others) const;

  private:
    Microbatch of_one_adapter() const;
    QueueTimes queue_times(Stage& stage, const Microbatch& microbatch) const;

    const Job& job_;
    ReplicaView view_;
    Microbatch largest_;
    Backend& backend_;
    HostTimes times_;
    bool bare_profiled_ = false;
    bool head_profiled_ = false;
    MetShapes counted_;
    std::int32_t rows_ = 0;  ///< shapes met
    double targets_ = 0.0;
    std::vector<NewShapeObservation> new_shapes_;
    std::vector<NewTargetsObservation> new_targets_;
};

}  // namespace loratrain
