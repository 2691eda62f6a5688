#include "train/checkpoint/adapter_transfer.h"

#include <algorithm>
#include <cstring>
#include <iterator>

#include "adapter/grad_units.h"
#include "base/error.h"

namespace loratrain {

namespace {

bool same_bits(std::span<const float> a, std::span<const float> b) {
    return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size_bytes()) == 0;
}

/// Puts together what the lanes of a stage have of an adapter's tensors.
class StageTensors {
  public:
    StageTensors(const AdapterJob& adapter, const ModelSpec& model, const StagePlan& stage,
                 const LayerRange& layers, AdapterBank::Part part)
        : adapter_(adapter),
          model_(model),
          stage_(stage),
          layers_(layers),
          part_(part),
          whole_(adapter_tensors(adapter, model, layers, part)) {}

    /// Lanes come in their order.
    void add(const TensorLane& lane, std::span<const float> values) {
        const AdapterLayout layout(adapter_, model_, layers_, lane);
        const std::span<const PlacedTensor> tensors = layout.tensors(part_);
        LORATRAIN_CHECK(std::ssize(values) == layout.count(part_), "rank ",
                        stage_.rank + lane.index, " has ", values.size(), " values of ",
                        adapter_.name, " instead of ", layout.count(part_));
        cuts_.resize(tensors.size());
        for (std::size_t i = 0; i < tensors.size(); ++i) {
            const auto [first, count] = tensors[i].range;
            add(i, tensors[i].cut, lane,
                values.subspan(static_cast<std::size_t>(first), static_cast<std::size_t>(count)));
        }
    }

    std::vector<NamedTensor> take() { return std::move(whole_); }

  private:
    void add(std::size_t i, const TensorCut& cut, const TensorLane& lane,
             std::span<const float> values) {
        std::vector<float>& whole = whole_[i].values;
        whole.resize(static_cast<std::size_t>(cut.whole_count()));
        if (lane.index == 0 || cut.own != cuts_[i].own) {
            paste(cut, values, whole);
        } else if (!same_bits(values, cut_out(cut, whole))) {
            throw Error(
                cat("adapter ", adapter_.name, ", ", whole_[i].name, ": ranks ",
                    stage_.rank + lane.index - 1, " and ", stage_.rank + lane.index,
                    " should have the same values, but differ; a GPU or its memory may be faulty: "
                    "start again, from the last checkpoint"));
        }
        cuts_[i] = cut;
    }

    const AdapterJob& adapter_;
    const ModelSpec& model_;
    const StagePlan& stage_;
    LayerRange layers_;
    AdapterBank::Part part_;
    std::vector<NamedTensor> whole_;
    std::vector<TensorCut> cuts_;  ///< of the lane before
};

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

std::vector<NamedTensor> join_values(const Job& job, const Plan& plan, AdapterId adapter,
                                     AdapterBank::Part part, const ValuesOfRanks& values_of) {
    const ReplicaPlan& replica = plan.replicas.front();
    std::vector<NamedTensor> all;
    for (const StagePlan& stage : replica.stages) {
        StageTensors tensors(job.adapter(adapter), plan.model, stage, state_layers(stage, adapter),
                             part);
        for (std::int32_t lane = 0; lane < replica.tensor; ++lane) {
            tensors.add({lane, replica.tensor}, values_of(stage.rank + lane));
        }
        std::vector<NamedTensor> of_stage = tensors.take();
        all.insert(all.end(), std::make_move_iterator(of_stage.begin()),
                   std::make_move_iterator(of_stage.end()));
    }
    return all;
}

}  // namespace loratrain
