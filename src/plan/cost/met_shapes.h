#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <set>

#include "plan/costs.h"
#include "plan/replica_view.h"

namespace loratrain {

/// Shapes that stages have met: a new shape delays the host once.

/// The part of a stage that decides which shapes it meets.
struct MeetingStage {
    std::size_t number = 0;
    std::int64_t head_rows = 0;  ///< targets that its head computes at once; 0 = no head
    /// Adapters computed in the layers that it may share with its neighbours.
    std::array<AdapterSpan, 2> shared = {};
};
MeetingStage meeting_stage(std::size_t number, const ReplicaView& view, const StagePlan& stage);

/// A microbatch's LoRA columns beside the base's matrices; 0 = none.
std::int64_t width_of(const Microbatch& microbatch);

/// Shapes of microbatches that stages have met. At a new shape the host chooses GEMM algorithms,
/// once per run: for layers by tokens and LoRA columns (base/gemm_shape.h), for the head by
/// targets, as many as it computes at once. In a shared layer the tokens of the stage's adapters
/// count.
class MetShapes {
  public:
    /// Seconds of the stage's host for new shapes of a microbatch. The stage has met them from then
    /// on.
    double meet(const MeetingStage& stage, const HostCosts& host, const Microbatch& microbatch);
    /// The part of the layers' GEMMs. `width`: LoRA columns beside the base's matrices; 0 = none.
    double meet_rows(std::size_t stage, std::int64_t tokens, std::int64_t width,
                     const NewShapeLine& line);
    /// The part of the head's GEMMs.
    double meet_targets(std::size_t stage, std::int64_t targets, std::int64_t head_rows,
                        const NewShapeLine& line);

  private:
    enum class Kind : std::uint8_t { rows, targets };
    using Shape = std::array<std::int64_t, 2>;

    /// Number of the shape among the stage's shapes of its kind, from 1; 0 = met before.
    std::int64_t number_if_new(std::size_t stage, Kind kind, const Shape& shape);

    std::set<std::array<std::int64_t, 4>> met_;
    std::map<std::array<std::int64_t, 2>, std::int64_t> count_;  ///< by stage and kind
};

/// True if new shapes cost anything.
bool meets_new_shapes(const HostCosts& host);

/// Seconds that new shapes of the windows' microbatches delay the stage which they delay most, by
/// predicted_costs_of(). All stages have met them from then on.
double stall_seconds(const Plan& plan, const JointWindow& joint, MetShapes& met);

}  // namespace loratrain
