#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "plan/cost/met_shapes.h"

namespace loratrain {

/// StartShape::stage of shapes that all have.
inline constexpr std::int32_t every_stage = -1;

/// What of a microbatch decides which GEMMs it takes (met_shapes.h), or of the part of it that a
/// stage computes in a layer that neighbours share.
struct StartShape {
    std::int64_t tokens = 0;
    std::int64_t width = 0;    ///< of LoRA columns beside the base's matrices, 0 where none are
    std::int64_t targets = 0;  ///< 0 = of no class that others have not
    std::int32_t stage = every_stage;  ///< MeetingStage::number of the one that has it
    friend bool operator==(const StartShape&, const StartShape&) = default;
};
template <class Archive>
void fields(Archive& archive, StartShape& shape) {
    archive("tokens", shape.tokens);
    archive("width", shape.width);
    archive("targets", shape.targets);
    archive("stage", shape.stage);
}

/// What a replica begins with.
struct StartWindow {
    std::span<const Microbatch> microbatches;  ///< which outlive it
    std::vector<MeetingStage> stages;
};

/// Those that these replicas' microbatches have which are unlike all before them, each replica's
/// first ones first, the next ones then, and so on; after a microbatch's own those of its parts.
/// `head_rows`: as MeetingStage's.
std::vector<StartShape> start_shapes(std::span<const StartWindow> replicas, std::int64_t head_rows);
/// Those that all stages have, and this one's.
std::vector<StartShape> shapes_of_stage(std::span<const StartShape> shapes, std::size_t stage);

/// Adds the classes that later microbatches may have where lengths are mixed, which is where there
/// are `mixed_classes` or more classes of tokens among the shapes: all between the smallest of them
/// and that of `most_tokens`, the largest first, for each class of width; and where there are as
/// many of targets, all between the smallest and `head_rows`. Parts have no others.
void add_possible(std::vector<StartShape>& shapes, std::int64_t most_tokens,
                  std::int64_t head_rows);
inline constexpr std::size_t mixed_classes = 3;

/// A stage has met those that it has; as MetShapes::meet().
void meet(MetShapes& met, const MeetingStage& stage, std::span<const StartShape> shapes);

}  // namespace loratrain
