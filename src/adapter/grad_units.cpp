#include "adapter/grad_units.h"

#include <algorithm>
#include <map>
#include <set>
#include <tuple>

#include "adapter/adapter_layout.h"
#include "base/error.h"
#include "plan/memory/memory_model.h"

namespace loratrain {

namespace {

/// What a rank has of a tensor.
struct Piece {
    std::int32_t rank = 0;
    PlacedTensor tensor;
};

using TensorKey = std::tuple<std::int32_t, Linear, std::size_t, std::int32_t>;
using Pieces = std::map<TensorKey, std::vector<Piece>>;

Pieces pieces_of(const AdapterJob& adapter, AdapterId id, const Plan& plan) {
    Pieces pieces;
    for (const ReplicaPlan& replica : plan.replicas) {
        for (const StagePlan& stage : replica.stages) {
            for (std::int32_t lane = 0; lane < replica.tensor; ++lane) {
                const AdapterLayout layout(adapter, plan.model, state_layers(stage, id),
                                           {lane, replica.tensor});
                for (const PlacedTensor& tensor : layout.tensors(StatePart::gradients)) {
                    pieces[{tensor.layer, tensor.linear, tensor.of_form, tensor.expert}].push_back(
                        {stage.rank + lane, tensor});
                }
            }
        }
    }
    return pieces;
}

/// The axis along which some cut the tensor; all of it as one block where none does.
TensorCut axis_of(const std::vector<Piece>& pieces) {
    for (const Piece& piece : pieces) {
        if (!piece.tensor.cut.is_whole()) return piece.tensor.cut;
    }
    return pieces.front().tensor.cut;
}

/// What a piece has along the axis.
Slices along(const TensorCut& axis, const Piece& piece) {
    const TensorCut& cut = piece.tensor.cut;
    if (cut.is_whole()) return Slice{0, axis.extent};
    LORATRAIN_CHECK(cut.outer == axis.outer && cut.extent == axis.extent && cut.inner == axis.inner,
                    "ranks cut a tensor along two axes");
    return cut.own;
}

/// Where the first of a piece's indices is behind which it has `slice`; -1: it has no part of it.
std::int64_t place_in(const Slices& own, const Slice& slice) {
    std::int64_t place = 0;
    for (const Slice& range : own.ranges()) {
        if (slice.first >= range.first && slice.first < range.end()) {
            return place + slice.first - range.first;
        }
        place += range.count;
    }
    return -1;
}

/// Of the axis, so much at most that its owner can receive it from as many ranks.
std::int64_t most_of_a_unit(const Plan& plan, const TensorCut& axis, std::size_t ranks) {
    const std::int64_t values = axis.outer * axis.inner * static_cast<std::int64_t>(ranks);
    return std::max<std::int64_t>(1, exchanged_at_once(plan) / values);
}

void add_units(const Plan& plan, const std::string& name, const std::vector<Piece>& pieces,
               std::vector<GradUnit>& units) {
    const TensorCut axis = axis_of(pieces);
    const std::int64_t most = most_of_a_unit(plan, axis, pieces.size());
    std::set<std::int64_t> ends;
    for (const Piece& piece : pieces) {
        const Slices own = along(axis, piece);
        for (const Slice& range : own.ranges()) ends.insert({range.first, range.end()});
    }
    for (std::int64_t end = *ends.begin() + most; end < *ends.rbegin(); end += most) {
        ends.insert(end);
    }
    for (auto end = ends.begin(); std::next(end) != ends.end(); ++end) {
        const Slice slice{*end, *std::next(end) - *end};
        GradUnit unit{name, axis.outer * slice.count * axis.inner, {}, 0};
        for (const Piece& piece : pieces) {
            const Slices own = along(axis, piece);
            const std::int64_t place = place_in(own, slice);
            if (place < 0) continue;
            unit.copies.push_back(
                {piece.rank,
                 piece.tensor.range.first,
                 {axis.outer, own.count(), axis.inner, Slice{place, slice.count}}});
        }
        unit.owner = unit.copies[units.size() % unit.copies.size()].rank;
        units.push_back(std::move(unit));
    }
}

}  // namespace

std::vector<GradUnit> grad_units(const AdapterJob& adapter, AdapterId id, const Plan& plan) {
    std::vector<GradUnit> units;
    for (const auto& [key, pieces] : pieces_of(adapter, id, plan)) {
        add_units(plan, named_tensor(adapter, pieces.front().tensor).name, pieces, units);
    }
    return units;
}

}  // namespace loratrain
