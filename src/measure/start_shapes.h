#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "plan/cost/met_shapes.h"

namespace loratrain {

/// The shapes of the first microbatches, for which GEMM algorithms are chosen beforehand.

/// StartShape::stage of shapes that all stages have.
inline constexpr std::int32_t every_stage = -1;

/// What decides which GEMM algorithms a microbatch needs (met_shapes.h). A layer that neighbouring
/// stages share has shapes of its own: each stage computes a part of the rows.
struct StartShape {
    std::int64_t tokens = 0;
    std::int64_t width = 0;            ///< LoRA columns beside the base's matrices
    std::int64_t targets = 0;          ///< 0: they add no class of shapes
    std::int32_t stage = every_stage;  ///< MeetingStage::number of the one that has it
    friend bool operator==(const StartShape&, const StartShape&) = default;
};
template <class Archive>
void fields(Archive& archive, StartShape& shape) {
    archive.list(shape.tokens, shape.width, shape.targets, shape.stage);
}

/// The microbatches that a replica begins with.
struct StartWindow {
    std::span<const Microbatch> microbatches;  ///< which outlive it
    std::vector<MeetingStage> stages;
};

/// The different shapes of these replicas' microbatches, in the order in which they come: the first
/// microbatches of all replicas, then the second ones and so on. The shapes of a microbatch's parts
/// follow its own. `head_rows`: as MeetingStage's.
std::vector<StartShape> start_shapes(std::span<const StartWindow> replicas, std::int64_t head_rows);
/// The shapes that all stages have, and those of this stage.
std::vector<StartShape> shapes_of_stage(std::span<const StartShape> shapes, std::size_t stage);

/// Adds the classes that later microbatches may have if lengths are mixed, the largest first:
/// - if the shapes have `mixed_classes` or more classes of tokens: all classes from the smallest to
///   that of `most_tokens`, for each class of width;
/// - if they have as many classes of targets: all from the smallest to that of `head_rows`.
/// Parts of microbatches get no additional classes.
void add_possible(std::vector<StartShape>& shapes, std::int64_t most_tokens,
                  std::int64_t head_rows);
inline constexpr std::size_t mixed_classes = 3;

/// Notes that the stage has met its shapes among these (MetShapes::meet()).
void meet(MetShapes& met, const MeetingStage& stage, std::span<const StartShape> shapes);

}  // namespace loratrain
