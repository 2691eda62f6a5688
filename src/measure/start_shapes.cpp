#include "measure/start_shapes.h"

#include <algorithm>
#include <iterator>
#include <limits>
#include <map>
#include <set>

#include "base/gemm_shape.h"
#include "base/text.h"

namespace loratrain {

namespace {

/// What counts shapes.
constexpr NewShapeLine counted_once{1.0, 0.0, 0};

StartShape shape_of(const Microbatch& microbatch, const AdapterSpan& adapters) {
    StartShape shape;
    shape.width = width_of(microbatch);
    for (const Segment& segment : microbatch.segments) {
        if (!adapters.contains(segment.adapter)) continue;
        for (const SampleRef& sample : segment.samples) {
            shape.tokens += sample.tokens;
            shape.targets += sample.targets;
        }
    }
    return shape;
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

/// Collects the shapes that nobody has met before.
class Collection {
  public:
    Collection(std::span<const StartWindow> replicas, std::int64_t head_rows)
        : head_rows_(head_rows) {
        for (const StartWindow& replica : replicas) {
            stages_.insert(stages_.end(), replica.stages.begin(), replica.stages.end());
        }
    }

    void add(const Microbatch& microbatch, const std::vector<MeetingStage>& stages) {
        add_if_new(shape_of(microbatch, {}), everybody);
        for (const MeetingStage& stage : stages) {
            for (const AdapterSpan& adapters : stage.shared) {
                if (adapters.is_all()) continue;
                StartShape part = shape_of(microbatch, adapters);
                part.targets = 0;
                part.stage = static_cast<std::int32_t>(stage.number);
                add_if_new(part, stage.number);
            }
        }
    }

    std::vector<StartShape> shapes() { return std::move(shapes_); }

  private:
    static constexpr std::size_t everybody = std::numeric_limits<std::int32_t>::max();

    void add_if_new(StartShape shape, std::size_t stage) {
        if (shape.tokens == 0) return;
        const bool rows = met_.meet_rows(stage, shape.tokens, shape.width, counted_once) > 0.0;
        const bool targets =
            met_.meet_targets(stage, shape.targets, head_rows_, counted_once) > 0.0;
        if (!rows && !targets) return;
        if (stage == everybody) {
            for (const MeetingStage& each : stages_) {
                met_.meet_rows(each.number, shape.tokens, shape.width, counted_once);
            }
        }
        if (!targets) shape.targets = 0;
        shapes_.push_back(shape);
    }

    std::int64_t head_rows_;
    std::vector<MeetingStage> stages_;
    MetShapes met_;
    std::vector<StartShape> shapes_;
};

}  // namespace

std::vector<StartShape> start_shapes(std::span<const StartWindow> replicas,
                                     std::int64_t head_rows) {
    std::size_t most = 0;
    for (const StartWindow& replica : replicas) {
        most = std::max(most, replica.microbatches.size());
    }
    Collection collection(replicas, head_rows);
    for (std::size_t m = 0; m < most; ++m) {
        for (const StartWindow& replica : replicas) {
            if (m < replica.microbatches.size()) {
                collection.add(replica.microbatches[m], replica.stages);
            }
        }
    }
    return collection.shapes();
}

std::vector<StartShape> shapes_of_stage(std::span<const StartShape> shapes, std::size_t stage) {
    std::vector<StartShape> own;
    std::copy_if(shapes.begin(), shapes.end(), std::back_inserter(own), [&](const auto& shape) {
        return shape.stage == every_stage || shape.stage == static_cast<std::int32_t>(stage);
    });
    return own;
}

void add_possible(std::vector<StartShape>& shapes, std::int64_t most_tokens,
                  std::int64_t head_rows) {
    if (shapes.empty()) return;
    MetShapes met;
    meet(met, {0, head_rows}, shapes);
    std::set<std::int64_t> tokens;
    std::set<std::int64_t> targets;
    std::map<std::int64_t, std::int64_t> widths;  // by class, the first
    for (const StartShape& shape : shapes) {
        if (shape.stage != every_stage) continue;
        tokens.insert(rows_alike(shape.tokens).largest);
        if (shape.targets > 0) targets.insert(last_chunk(shape.targets, head_rows));
        widths.emplace(lora_columns_alike(shape.width), shape.width);
    }
    const StartShape first = shapes.front();
    if (tokens.size() >= mixed_classes) {
        for (const std::int64_t rows : classes_down(most_tokens, *tokens.begin())) {
            for (const auto& [of_class, width] : widths) {
                if (met.meet_rows(0, rows, width, counted_once) == 0.0) continue;
                shapes.push_back({rows, width, 0});
            }
        }
    }
    if (targets.size() < mixed_classes) return;
    for (const std::int64_t rows : classes_down(head_rows, *targets.begin())) {
        if (met.meet_targets(0, rows, head_rows, counted_once) == 0.0) continue;
        shapes.push_back({first.tokens, first.width, rows});
    }
}

void meet(MetShapes& met, const MeetingStage& stage, std::span<const StartShape> shapes) {
    for (const StartShape& shape : shapes_of_stage(shapes, stage.number)) {
        met.meet_rows(stage.number, shape.tokens, shape.width, counted_once);
        met.meet_targets(stage.number, shape.targets, stage.head_rows, counted_once);
    }
}

}  // namespace loratrain
