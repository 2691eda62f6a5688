#include "train/checkpoint/adapter_transfer.h"

#include <algorithm>
#include <cstring>
#include <iterator>
#include <sstream>

#include "adapter/grad_units.h"
#include "base/error.h"
#include "io/checksum.h"
#include "plan/place.h"

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
            throw Error(cat("adapter ", adapter_.name, ", ", whole_[i].name, ": ranks ",
                            stage_.rank + lane.index - 1, " and ", stage_.rank + lane.index,
                            " should have the same values, but differ"));
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

/// Of what a rank has of units, in order, as words with a blank behind each; `values` are its
/// array.
std::string checksums_on(int rank, std::span<const GradUnit> units,
                         const std::vector<float>& values) {
    std::string checksums;
    for (const GradUnit& unit : units) {
        for (const UnitHolder& holder : unit.holders) {
            if (holder.rank != rank) continue;
            const auto whole = static_cast<std::size_t>(holder.cut.whole_count());
            const std::vector<float> part =
                cut_out(holder.cut, {values.data() + holder.first, whole});
            Checksum checksum;
            checksum.update(part.data(), part.size() * sizeof(float));
            checksums += checksum.hex() + " ";
        }
    }
    return checksums;
}

/// What several ranks have of an adapter is equal.
void check_holders(const MpiSession& mpi, const Job& job, const Plan& plan, AdapterId adapter,
                   const std::vector<float>& mine) {
    const std::vector<GradUnit> units = grad_units(job.adapter(adapter), adapter, plan);
    std::vector<std::istringstream> checksums;
    for (const std::string& text : gather_texts(mpi, checksums_on(mpi.rank(), units, mine))) {
        checksums.emplace_back(text);
    }
    for (const GradUnit& unit : units) {
        const UnitHolder& first = unit.holders.front();
        const auto next = [&](const UnitHolder& holder) {
            std::string word;
            checksums[static_cast<std::size_t>(holder.rank)] >> word;
            return word;
        };
        const std::string wanted = next(first);
        for (std::size_t h = 1; h < unit.holders.size(); ++h) {
            if (next(unit.holders[h]) == wanted) continue;
            throw Error(cat("adapter ", job.adapter(adapter).name, ", ", unit.name, ": ranks ",
                            first.rank, " and ", unit.holders[h].rank,
                            " should have the same values, but differ"));
        }
    }
}

}  // namespace

std::vector<NamedTensor> join_values(
    const Job& job, const Plan& plan, AdapterId adapter, AdapterBank::Part part,
    const std::function<std::span<const float>(std::int32_t rank)>& values_of) {
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

std::vector<NamedTensor> gather_adapter(const MpiSession& mpi, const Job& job, const Plan& plan,
                                        AdapterBank& bank, AdapterId adapter,
                                        AdapterBank::Part part) {
    const std::vector<float> mine = bank.numbers(adapter, part);
    if (plan.replicas.size() > 1) check_holders(mpi, job, plan, adapter, mine);
    if (!mpi.is_root()) {
        if (place_of(plan, mpi.rank()).replica == 0) send_floats(mpi, mine, 0);
        return {};
    }
    std::vector<float> received;
    return join_values(job, plan, adapter, part, [&](std::int32_t rank) -> std::span<const float> {
        if (rank == 0) return mine;
        received = receive_floats(mpi, rank);
        return received;
    });
}

}  // namespace loratrain
