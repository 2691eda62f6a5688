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

/// Measures how long the host takes to queue a microbatch on a GPU.

/// Seconds that the host takes to queue a microbatch on a stage.
struct QueueTimes {
    double forward = 0.0;
    double backward = 0.0;  ///< 0 for the stage with the head, which has no layers here
};

/// What a profile measures with microbatches of `segments` adapters.
struct HostTimes {
    std::int32_t layers = 1;  ///< of the stage with layers
    double segments = 1.0;
    QueueTimes with_layers;                      ///< with rows of all adapters
    std::array<QueueTimes, 2> without_layers{};  ///< of an empty stage: rows of one adapter, of all
    double head = 0.0;                           ///< the forward of a stage that has only the head
};

/// Costs of the host from its times. No term is negative. Two terms are estimates:
/// - the time per adapter in a layer: measuring it would make the GPU's libraries meet shapes that
///   training does not have;
/// - the time of new shapes, fitted to four runs of SmolLM2-135M on H200s (tests/bench/RESULTS.md,
///   run_predictions.py). Larger models time GEMM candidates for longer, which it leaves out.
HostCosts host_costs(const HostTimes& times);

/// Times the host of a GPU on stages without embedding: the median of a few microbatches, each
/// queued on an idle stream. Factors count as changed since the microbatch before, as in training,
/// where adapters step or others have rows.
class HostProfile {
  public:
    /// `largest`: the microbatch to queue, with rows of all the job's adapters. `layers`: how many
    /// the stage with layers has. `job`, `view` and `backend` outlive the object.
    HostProfile(const Job& job, const ReplicaView& view, Microbatch largest, Backend& backend,
                std::int32_t layers);

    /// A microbatch has run on the stage with layers for the first time, or its targets on the
    /// stage with the head. `seconds`: by how much the first run was longer than a second one, if
    /// measured. `chose`: it chose GEMM algorithms, which an earlier run may have left in a file.
    void meet(const Microbatch& microbatch, std::optional<double> seconds, bool chose);
    void meet_targets(std::int64_t targets, std::optional<double> seconds, bool chose);
    /// Whether this shape is new. The caller then runs it now, without observing it
    /// (start_shapes.h).
    bool prepares_rows(std::int64_t tokens, std::int64_t width);
    bool prepares_targets(std::int64_t targets);

    /// Returns the seconds of a microbatch's forward and backward together.
    double profile_layers(Stage& stage);
    void profile_head(Stage& stage);
    void profile_bare(Stage& stage);
    /// The measured costs. An empty stage or a head that was not profiled keeps its costs in
    /// `others`.
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
