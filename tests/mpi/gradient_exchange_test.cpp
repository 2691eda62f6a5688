#include "train/gradient_exchange.h"

#include <limits>

#include "adapter/adapter_layout.h"
#include "backend/make_backend.h"
#include "base/rng.h"
#include "comm/collective.h"
#include "mpi/mpi_main.h"
#include "plan/deploy/partition_layers.h"
#include "plan/place.h"
#include "plan/replica_view.h"
#include "train/lane_groups.h"
#include "unit/model/small_stage.h"

namespace loratrain::mpi_test {
namespace {

constexpr std::int32_t layers = 2;

ReplicaPlan replica_of(std::int32_t tensor, std::int32_t stages) {
    ReplicaPlan replica;
    replica.tensor = tensor;
    replica.stages = partition_layers(layers, stages, CostModel{}, MicrobatchLoad{});
    replica.microbatch_tokens = 8;
    replica.saved_columns = 16;
    return replica;
}

/// Unlike replicas on all ranks: of four <2,1> and <1,2>, of three <2,1> and <1,1>, of two <1,1>
/// twice.
std::vector<ReplicaPlan> replicas_for(int ranks) {
    switch (ranks) {
        case 1:
            return {replica_of(1, 1)};
        case 2:
            return {replica_of(1, 1), replica_of(1, 1)};
        case 3:
            return {replica_of(2, 1), replica_of(1, 1)};
        default:
            return {replica_of(2, 1), replica_of(1, 2)};
    }
}

class Exchange : public ::testing::Test {
  protected:
    Exchange()
        : case_(test::small_model(), {test::small_adapter("one", 3)}),
          plan_(case_.plan),
          backend_(make_backend("cpu", {1, 0})) {
        plan_.replicas = replicas_for(session().size());
        number_ranks(plan_.replicas);
        lanes_ = std::make_unique<LaneGroups>(session(), plan_, *backend_);
        const Place place = place_of(plan_, session().rank());
        const ReplicaPlan& replica = plan_.replicas[place.replica];
        stage_ = replica.stages[place.stage];
        tensor_ = {place.lane, replica.tensor};
        bank_ = std::make_unique<AdapterBank>(case_.job, view_of(plan_, replica), stage_, *backend_,
                                              lanes_->of_rank());
        layout_ =
            AdapterLayout(case_.job.adapter(one), plan_.model, layers_of(stage_, one), tensor_);
        exchange_ = std::make_unique<GradientExchange>(session(), case_.job, plan_);
    }

    /// What rank `rank` has of the whole tensor's element.
    static float drawn(const PlacedTensor& tensor, std::int64_t element, int rank) {
        const auto key = mix_key(mix_key(static_cast<std::uint64_t>(tensor.layer),
                                         static_cast<std::uint64_t>(tensor.linear)),
                                 mix_key(tensor.of_form, static_cast<std::uint64_t>(rank)));
        return uniform_float(key, static_cast<std::uint64_t>(element)) - 0.5F;
    }

    std::vector<float> own_gradients() const {
        std::vector<float> values(static_cast<std::size_t>(layout_.count(StatePart::gradients)));
        for_each([&](const PlacedTensor& tensor, std::int64_t element, std::size_t place) {
            values[place] = drawn(tensor, element, session().rank());
        });
        return values;
    }

    template <class Visit>
    void for_each(const Visit& visit) const {
        for (const PlacedTensor& tensor : layout_.tensors(StatePart::gradients)) {
            for (std::int64_t i = 0; i < tensor.range.count; ++i) {
                visit(tensor, tensor.cut.whole_index(i),
                      static_cast<std::size_t>(tensor.range.first + i));
            }
        }
    }

    /// Added in rank order over the ranks that have the element.
    float sum_of(const PlacedTensor& tensor, std::int64_t element) const {
        float sum = 0.0F;
        bool first = true;
        for (const ReplicaPlan& replica : plan_.replicas) {
            for (const StagePlan& stage : replica.stages) {
                for (std::int32_t lane = 0; lane < replica.tensor; ++lane) {
                    if (!has(stage, {lane, replica.tensor}, tensor, element)) continue;
                    const float value = drawn(tensor, element, stage.rank + lane);
                    sum = first ? value : sum + value;
                    first = false;
                }
            }
        }
        return sum;
    }

    bool has(const StagePlan& stage, const TensorLane& lane, const PlacedTensor& tensor,
             std::int64_t element) const {
        const AdapterLayout layout(case_.job.adapter(one), plan_.model, layers_of(stage, one),
                                   lane);
        for (const PlacedTensor& other : layout.tensors(StatePart::gradients)) {
            if (other.layer != tensor.layer || other.linear != tensor.linear ||
                other.of_form != tensor.of_form) {
                continue;
            }
            for (std::int64_t i = 0; i < other.range.count; ++i) {
                if (other.cut.whole_index(i) == element) return true;
            }
        }
        return false;
    }

    static constexpr AdapterId one{0};
    test::SmallCase case_;
    Plan plan_;
    std::unique_ptr<Backend> backend_;
    std::unique_ptr<LaneGroups> lanes_;
    StagePlan stage_;
    TensorLane tensor_;
    std::unique_ptr<AdapterBank> bank_;
    AdapterLayout layout_;
    std::unique_ptr<GradientExchange> exchange_;
};

TEST_F(Exchange, AddsWhatHoldersHaveInTheirOrder) {
    bank_->set_gradients(one, own_gradients());
    const double loss = 1.0 + session().rank();
    const GradientExchange::Sums sums = exchange_->reduce(one, loss, *bank_, {});
    const std::vector<float> got = bank_->gradients(one);
    double own_squares = 0.0;
    for_each([&](const PlacedTensor& tensor, std::int64_t element, std::size_t place) {
        EXPECT_EQ(got[place], sum_of(tensor, element));
        own_squares += double{got[place]} * double{got[place]};
    });
    const int ranks = session().size();
    EXPECT_DOUBLE_EQ(sums.loss, 0.5 * ranks * (ranks + 1));
    for (const double other : gather_numbers(session(), sums.squares)) {
        EXPECT_EQ(other, sums.squares);
    }
    // The last rank alone, or the last two as a pipeline, have the whole adapter.
    const Place place = place_of(plan_, ranks - 1);
    const auto stages = static_cast<int>(plan_.replicas[place.replica].stages.size());
    const std::vector<double> squares = gather_numbers(session(), own_squares);
    double wanted = 0.0;
    for (int rank = ranks - stages; rank < ranks; ++rank) {
        wanted += squares[static_cast<std::size_t>(rank)];
    }
    EXPECT_NEAR(sums.squares / wanted, 1.0, 1e-12);
}

TEST_F(Exchange, SpreadsWhatIsNotFinite) {
    std::vector<float> gradients = own_gradients();
    if (session().rank() + 1 == session().size()) {
        gradients.back() = std::numeric_limits<float>::infinity();
    }
    bank_->set_gradients(one, gradients);
    EXPECT_FALSE(std::isfinite(exchange_->reduce(one, 0.0, *bank_, {}).squares));
}

}  // namespace
}  // namespace loratrain::mpi_test
