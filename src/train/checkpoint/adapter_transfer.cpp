#include "train/checkpoint/adapter_transfer.h"

#include <cstring>
#include <utility>

#include "adapter/grad_units.h"
#include "base/error.h"
#include "base/pages.h"

namespace loratrain {

namespace {

bool same_bits(std::span<const float> a, std::span<const float> b) {
    return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size_bytes()) == 0;
}

/// A tensor of a stage, in the parts that lanes have of it.
class TensorOfLanes {
  public:
    struct Part {
        TensorCut cut;
        std::int32_t rank = 0;
        std::span<const float> values;
    };

    TensorOfLanes(std::string where, std::vector<Part> parts)
        : where_(std::move(where)), parts_(std::move(parts)) {}

    /// TensorSource::values: those of a lane that has the whole tensor, else joined in `room`.
    std::span<const float> values(std::vector<float>& room) const {
        const Part& first = parts_.front();
        if (first.cut.is_whole()) {
            for (std::size_t i = 1; i < parts_.size(); ++i) check_equal(parts_[i], first.values);
            return first.values;
        }
        const auto count = static_cast<std::size_t>(first.cut.whole_count());
        reserve_large(room, count);
        room.resize(count);
        for (std::size_t i = 0; i < parts_.size(); ++i) {
            const bool is_new = i == 0 || parts_[i].cut.own != parts_[i - 1].cut.own;
            if (is_new) {
                paste(parts_[i].cut, parts_[i].values, room);
            } else {
                check_equal(parts_[i], room);
            }
        }
        return room;
    }

  private:
    /// That the part is what `whole` has in its places.
    void check_equal(const Part& part, std::span<const float> whole) const {
        const bool same = part.cut.is_whole() ? same_bits(part.values, whole)
                                              : same_bits(part.values, cut_out(part.cut, whole));
        if (same) return;
        throw Error(cat("adapter ", where_, ": ranks ", part.rank - 1, " and ", part.rank,
                        " should have the same values, but differ; a GPU or its memory may be "
                        "faulty: start again, from the last checkpoint"));
    }

    std::string where_;
    std::vector<Part> parts_;  ///< of the lanes in their order
};

/// What each lane of a stage has, tensor by tensor.
std::vector<std::vector<TensorOfLanes::Part>> parts_of_lanes(
    const AdapterJob& adapter, const Plan& plan, const StagePlan& stage, const LayerRange& layers,
    AdapterBank::Part part, const ValuesOfRanks& values_of) {
    std::vector<std::vector<TensorOfLanes::Part>> all;
    const std::int32_t lanes = plan.replicas.front().tensor;
    for (std::int32_t lane = 0; lane < lanes; ++lane) {
        const std::int32_t rank = stage.rank + lane;
        const AdapterLayout layout(adapter, plan.model, layers, {lane, lanes});
        const std::span<const PlacedTensor> tensors = layout.tensors(part);
        const std::span<const float> values = values_of(rank);
        LORATRAIN_CHECK(std::ssize(values) == layout.count(part), "rank ", rank, " has ",
                        values.size(), " values of ", adapter.name, " instead of ",
                        layout.count(part));
        all.resize(tensors.size());
        for (std::size_t i = 0; i < tensors.size(); ++i) {
            const auto [first, count] = tensors[i].range;
            const auto own =
                values.subspan(static_cast<std::size_t>(first), static_cast<std::size_t>(count));
            all[i].push_back({tensors[i].cut, rank, own});
        }
    }
    return all;
}

}  // namespace

void check_copies(const Job& job, const Plan& plan, AdapterId adapter,
                  const ValuesOfRanks& values_of) {
    const auto part_of = [&](const UnitCopy& copy) {
        const auto first = static_cast<std::size_t>(copy.first);
        const auto count = static_cast<std::size_t>(copy.cut.whole_count());
        return cut_out(copy.cut, values_of(copy.rank).subspan(first, count));
    };
    for (const GradUnit& unit : grad_units(job.adapter(adapter), adapter, plan)) {
        const UnitCopy& first = unit.copies.front();
        for (std::size_t h = 1; h < unit.copies.size(); ++h) {
            if (same_bits(part_of(first), part_of(unit.copies[h]))) continue;
            throw Error(
                cat("adapter ", job.adapter(adapter).name, ", ", unit.name, ": ranks ", first.rank,
                    " and ", unit.copies[h].rank,
                    " should have the same values, but differ; a GPU or its memory may be faulty: "
                    "start again, from the last checkpoint"));
        }
    }
}

std::vector<TensorSource> tensors_of(const Job& job, const Plan& plan, AdapterId adapter,
                                     AdapterBank::Part part, const ValuesOfRanks& values_of) {
    const AdapterJob& own = job.adapter(adapter);
    std::vector<TensorSource> all;
    for (const StagePlan& stage : plan.replicas.front().stages) {
        const LayerRange layers = state_layers(stage, adapter);
        std::vector<NamedTensor> whole = adapter_tensors(own, plan.model, layers, part);
        auto parts = parts_of_lanes(own, plan, stage, layers, part, values_of);
        for (std::size_t i = 0; i < whole.size(); ++i) {
            const TensorOfLanes tensor(cat(own.name, ", ", whole[i].name), std::move(parts[i]));
            all.push_back({std::move(whole[i].name), std::move(whole[i].shape),
                           [tensor](std::vector<float>& room) { return tensor.values(room); }});
        }
    }
    return all;
}

std::vector<NamedTensor> join_values(const Job& job, const Plan& plan, AdapterId adapter,
                                     AdapterBank::Part part, const ValuesOfRanks& values_of) {
    std::vector<NamedTensor> all;
    for (TensorSource& source : tensors_of(job, plan, adapter, part, values_of)) {
        NamedTensor& tensor =
            all.emplace_back(NamedTensor{std::move(source.name), std::move(source.shape), {}});
        const std::span<const float> values = source.values(tensor.values);
        if (values.data() == tensor.values.data()) continue;
        reserve_large(tensor.values, values.size());
        tensor.values.assign(values.begin(), values.end());
    }
    return all;
}

}  // namespace loratrain
