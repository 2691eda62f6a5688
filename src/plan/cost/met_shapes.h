#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <set>

#include "plan/costs.h"
#include "plan/replica_view.h"

namespace loratrain {

/// A stage, as far as it decides which shapes it meets.
struct MeetingStage {
    std::size_t number = 0;
    std::int64_t head_rows = 0;  ///< targets that its head computes at once; 0 without one
    /// Whom it computes in the layers that it may share with its neighbours.
    std::array<AdapterSpan, 2> shared = {};
};
MeetingStage meeting_stage(std::size_t number, const ReplicaView& view, const StagePlan& stage);

/// A microbatch's columns beside the base's matrices, 0 where none are.
std::int64_t width_of(const Microbatch& microbatch);

/// The shapes of microbatches that stages have met. At a new one the host chooses algorithms for
/// the GEMMs of layers (base/gemm_shape.h: tokens, LoRA columns) and of the head (targets, as many
/// at a time as it takes), each once a run. In a layer that neighbours share the tokens are those
/// of the adapters that the stage computes there.
class MetShapes {
  public:
    /// Seconds of the stage's host for what is new to it in a microbatch, which from now on it has
    /// met.
    double meet(const MeetingStage& stage, const HostCosts& host, const Microbatch& microbatch);
    /// The layers' GEMMs' part of it. `width`: of the LoRA columns that are beside the base's
    /// matrices, 0 where none are.
    double meet_rows(std::size_t stage, std::int64_t tokens, std::int64_t width,
                     const NewShapeLine& line);
    /// The head's part of it.
    double meet_targets(std::size_t stage, std::int64_t targets, std::int64_t head_rows,
                        const NewShapeLine& line);

  private:
    enum class Kind : std::uint8_t { rows, targets };
    using Shape = std::array<std::int64_t, 2>;

    /// Which of its kind that the stage meets the shape is, from 1; 0 = met before.
    std::int64_t number_if_new(std::size_t stage, Kind kind, const Shape& shape);

    std::set<std::array<std::int64_t, 4>> met_;
    std::map<std::array<std::int64_t, 2>, std::int64_t> count_;  ///< by stage and kind
};

/// Whether new shapes cost anything there.
bool meets_new_shapes(const HostCosts& host);

/// Of the stage that shapes of the windows' microbatches which are new to it hold up most, which
/// all stages have met from now on: seconds, by the costs that predictions take.
double stall_seconds(const Plan& plan, const JointWindow& joint, MetShapes& met);

}  // namespace loratrain
