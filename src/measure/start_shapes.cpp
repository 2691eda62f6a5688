#include "measure/start_shapes.h"

#include <algorithm>
#include <sstream>

#include "base/text.h"

namespace loratrain {

namespace {

/// What counts shapes.
constexpr NewShapeLine counted_once{1.0, 0.0, 0};

StartShape shape_of(const Microbatch& microbatch) {
    StartShape shape;
    shape.tokens = microbatch.tokens();
    shape.width = microbatch.columns.augmented ? microbatch.columns.width : 0;
    for (const Segment& segment : microbatch.segments) {
        for (const SampleRef& sample : segment.samples) shape.targets += sample.targets;
    }
    return shape;
}

}  // namespace

std::vector<StartShape> start_shapes(std::span<const Window> replicas, std::int64_t head_rows) {
    std::size_t most = 0;
    for (const Window& window : replicas) most = std::max(most, window.microbatches.size());
    MetShapes met;
    std::vector<StartShape> shapes;
    for (std::size_t m = 0; m < most; ++m) {
        for (const Window& window : replicas) {
            if (m >= window.microbatches.size()) continue;
            StartShape shape = shape_of(window.microbatches[m]);
            if (shape.tokens == 0) continue;
            const bool rows = met.meet_rows(0, shape.tokens, shape.width, counted_once) > 0.0;
            const bool targets = met.meet_targets(0, shape.targets, head_rows, counted_once) > 0.0;
            if (!targets) shape.targets = 0;
            if (rows || targets) shapes.push_back(shape);
        }
    }
    return shapes;
}

std::string to_text(const std::vector<StartShape>& shapes) {
    std::string text;
    for (const StartShape& shape : shapes) {
        text += cat(shape.tokens, " ", shape.width, " ", shape.targets, " ");
    }
    return text;
}

std::vector<StartShape> start_shapes_from_text(const std::string& text) {
    std::istringstream in(text);
    std::vector<StartShape> shapes;
    for (StartShape shape; in >> shape.tokens >> shape.width >> shape.targets;) {
        shapes.push_back(shape);
    }
    return shapes;
}

void meet(MetShapes& met, std::size_t stage, std::int64_t head_rows,
          std::span<const StartShape> shapes) {
    for (const StartShape& shape : shapes) {
        met.meet_rows(stage, shape.tokens, shape.width, counted_once);
        met.meet_targets(stage, shape.targets, head_rows, counted_once);
    }
}

}  // namespace loratrain
