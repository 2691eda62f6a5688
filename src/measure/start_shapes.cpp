#include "measure/start_shapes.h"

#include <algorithm>
#include <map>
#include <set>
#include <sstream>

#include "base/gemm_shape.h"
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
        for (const SampleRef& sample : segment.samples) {
            shape.targets += sample.targets;
            shape.lengths.push_back(sample.tokens);
        }
    }
    return shape;
}

/// Whether a graph is new.
bool meet_attention(MetShapes& met, std::size_t stage, std::span<const std::int64_t> lengths) {
    if (lengths.empty()) return false;
    SampleSizes sizes;
    for (const std::int64_t length : lengths) sizes.add(length);
    return met.meet_attention(stage, sizes, false, 1.0) > 0.0;
}

/// Of so many targets those that a head which takes `head_rows` at a time takes last, as a class.
std::int64_t last_chunk(std::int64_t targets, std::int64_t head_rows) {
    const std::int64_t chunk = std::max<std::int64_t>(1, head_rows);
    return rows_alike((targets - 1) % chunk + 1).largest;
}

/// The classes from that of `most` to that of `least` rows; of each the most rows, at most `most`.
std::vector<std::int64_t> classes_down(std::int64_t most, std::int64_t least) {
    std::vector<std::int64_t> classes;
    for (std::int64_t rows = most; rows > 0 && rows_alike(rows).largest >= least;
         rows = rows_alike(rows).smallest - 1) {
        classes.push_back(rows);
    }
    return classes;
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
            const bool attention = meet_attention(met, 0, shape.lengths);
            if (!targets) shape.targets = 0;
            if (!attention) shape.lengths.clear();
            if (rows || targets || attention) shapes.push_back(shape);
        }
    }
    return shapes;
}

void add_possible(std::vector<StartShape>& shapes, std::int64_t most_tokens,
                  std::int64_t head_rows) {
    if (shapes.empty()) return;
    MetShapes met;
    meet(met, 0, head_rows, shapes);
    std::set<std::int64_t> tokens;
    std::set<std::int64_t> targets;
    std::map<std::int64_t, std::int64_t> widths;  // by class, the first
    for (const StartShape& shape : shapes) {
        tokens.insert(rows_alike(shape.tokens).largest);
        if (shape.targets > 0) targets.insert(last_chunk(shape.targets, head_rows));
        widths.emplace(lora_columns_alike(shape.width), shape.width);
    }
    const StartShape first = shapes.front();
    if (tokens.size() >= mixed_classes) {
        for (const std::int64_t rows : classes_down(most_tokens, *tokens.begin())) {
            for (const auto& [of_class, width] : widths) {
                if (met.meet_rows(0, rows, width, counted_once) == 0.0) continue;
                shapes.push_back({rows, width, 0, {}});
            }
        }
    }
    if (targets.size() < mixed_classes) return;
    for (const std::int64_t rows : classes_down(head_rows, *targets.begin())) {
        if (met.meet_targets(0, rows, head_rows, counted_once) == 0.0) continue;
        shapes.push_back({first.tokens, first.width, rows, {}});
    }
}

std::string to_text(const std::vector<StartShape>& shapes) {
    std::string text;
    for (const StartShape& shape : shapes) {
        text +=
            cat(shape.tokens, " ", shape.width, " ", shape.targets, " ", shape.lengths.size(), " ");
        for (const std::int64_t length : shape.lengths) text += cat(length, " ");
    }
    return text;
}

std::vector<StartShape> start_shapes_from_text(const std::string& text) {
    std::istringstream in(text);
    std::vector<StartShape> shapes;
    StartShape shape;
    for (std::size_t samples = 0; in >> shape.tokens >> shape.width >> shape.targets >> samples;) {
        shape.lengths.resize(samples);
        for (std::int64_t& length : shape.lengths) in >> length;
        shapes.push_back(shape);
    }
    return shapes;
}

void meet(MetShapes& met, std::size_t stage, std::int64_t head_rows,
          std::span<const StartShape> shapes) {
    for (const StartShape& shape : shapes) {
        meet_attention(met, stage, shape.lengths);
        met.meet_rows(stage, shape.tokens, shape.width, counted_once);
        met.meet_targets(stage, shape.targets, head_rows, counted_once);
    }
}

}  // namespace loratrain
