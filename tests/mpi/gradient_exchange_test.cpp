#include "train/gradient_exchange.h"

#include <limits>
#include "adapter/host_gradients.h"

#include "adapter/adapter_layout.h"
#include "backend/make_backend.h"
#include "base/rng.h"
#include "comm/collective.h"
#include "comm/rank_groups.h"
#include "comm/waiting.h"
#include "mpi/gpu_ranks.h"
#include "mpi/mpi_main.h"
#include "plan/deploy/partition_layers.h"
#include "plan/place.h"
#include "plan/replica_view.h"
#include "train/stage_run.h"
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

/// Through the host's memory with backend cpu; through GPUs', where there are some, with cuda.
class Exchange : public ::testing::TestWithParam<std::string> {
  protected:
    Exchange()
        : case_(test::small_model(),
                {test::small_adapter("one", 3), test::small_adapter("two", 5)}),
          plan_(case_.plan) {}

    void SetUp() override {
        if (GetParam() == "cuda") {
            if (too_few_gpus()) GTEST_SKIP() << "too few GPUs";
            plan_.backend = BackendKind::cuda;
        }
        backend_ = make_backend(GetParam(), {1, session().host_rank()});
        plan_.replicas = replicas_for(session().size());
        number_ranks(plan_.replicas);
        lanes_ = std::make_unique<LaneGroups>(session(), plan_, *backend_);
        const RankPlace place = place_of(plan_, session().rank());
        const ReplicaPlan& replica = plan_.replicas[place.replica];
        stage_ = replica.stages[place.stage];
        tensor_ = {place.lane, replica.tensor};
        bank_ = std::make_unique<AdapterBank>(case_.job, view_of(plan_, replica), stage_, *backend_,
                                              lanes_->of_rank());
        plan_.joint = plan_.replicas.size() > 1;
        exchange_ = make_gradient_exchange(session(), case_.job, plan_, *backend_, 4096);
    }

    AdapterLayout layout(AdapterId adapter) const {
        return {case_.job.adapter(adapter), plan_.model, layers_of(stage_, adapter), tensor_};
    }

    /// What rank `rank` has of the whole tensor's element.
    static float drawn(const PlacedTensor& tensor, std::int64_t element, int rank) {
        const auto key = mix_key(mix_key(static_cast<std::uint64_t>(tensor.layer),
                                         static_cast<std::uint64_t>(tensor.linear)),
                                 mix_key(tensor.of_form, static_cast<std::uint64_t>(rank)));
        return uniform_float(key, static_cast<std::uint64_t>(element)) - 0.5F;
    }

    std::vector<float> own_gradients(AdapterId adapter) const {
        std::vector<float> values(
            static_cast<std::size_t>(layout(adapter).count(StatePart::gradients)));
        for_each(adapter, [&](const PlacedTensor& tensor, std::int64_t element, std::size_t place) {
            values[place] = drawn(tensor, element, session().rank());
        });
        return values;
    }

    template <class Visit>
    void for_each(AdapterId adapter, const Visit& visit) const {
        const AdapterLayout tensors = layout(adapter);
        for (const PlacedTensor& tensor : tensors.tensors(StatePart::gradients)) {
            tensor.cut.for_each_run(0, tensor.range.count, [&](const TensorCut::Run& run) {
                for (std::int64_t i = 0; i < run.count; ++i) {
                    visit(tensor, run.in_whole + i,
                          static_cast<std::size_t>(tensor.range.first + run.in_part + i));
                }
            });
        }
    }

    void begin(std::int32_t batch, AdapterId adapter, const std::vector<float>& gradients,
               double loss) {
        const std::span<float> array = bank_->gradient_array(adapter);
        HostGradients own(*backend_, array.data(), array.size());
        std::copy(gradients.begin(), gradients.end(), own.sums().begin());
        own.store();
        if (!loss_.data()) loss_ = backend_->allocate(sizeof(loss), "test");
        backend_->upload(loss_.data(), &loss, sizeof(loss));
        const ReadPart part{loss_.data(), sizeof(loss)};
        exchange_->begin({batch, adapter, array, backend_->read_later({&part, 1})});
    }

    /// What the bank has now is the sum; returns the squares of what this rank has of it.
    double check_sums(AdapterId adapter) const {
        const std::span<float> array = bank_->gradient_array(adapter);
        std::vector<float> got(array.size());
        backend_->download(got.data(), array.data(), array.size_bytes());
        double squares = 0.0;
        for_each(adapter, [&](const PlacedTensor& tensor, std::int64_t element, std::size_t place) {
            EXPECT_EQ(got[place], sum_of(adapter, tensor, element));
            squares += double{got[place]} * double{got[place]};
        });
        return squares;
    }

    /// Added in rank order over the ranks that have the element.
    float sum_of(AdapterId adapter, const PlacedTensor& tensor, std::int64_t element) const {
        float sum = 0.0F;
        bool first = true;
        for (const ReplicaPlan& replica : plan_.replicas) {
            for (const StagePlan& stage : replica.stages) {
                for (std::int32_t lane = 0; lane < replica.tensor; ++lane) {
                    if (!has(adapter, stage, {lane, replica.tensor}, tensor, element)) continue;
                    const float value = drawn(tensor, element, stage.rank + lane);
                    sum = first ? value : sum + value;
                    first = false;
                }
            }
        }
        return sum;
    }

    bool has(AdapterId adapter, const StagePlan& stage, const TensorLane& lane,
             const PlacedTensor& tensor, std::int64_t element) const {
        const AdapterLayout other_layout(case_.job.adapter(adapter), plan_.model,
                                         layers_of(stage, adapter), lane);
        for (const PlacedTensor& other : other_layout.tensors(StatePart::gradients)) {
            if (other.layer != tensor.layer || other.linear != tensor.linear ||
                other.of_form != tensor.of_form) {
                continue;
            }
            bool found = false;
            other.cut.for_each_run(0, other.range.count, [&](const TensorCut::Run& run) {
                found = found || (element >= run.in_whole && element < run.in_whole + run.count);
            });
            if (found) return true;
        }
        return false;
    }

    static constexpr AdapterId one{0};
    static constexpr AdapterId two{1};
    test::SmallCase case_;
    Plan plan_;
    std::unique_ptr<Backend> backend_;
    std::unique_ptr<LaneGroups> lanes_;
    StagePlan stage_;
    TensorLane tensor_;
    Buffer loss_;
    std::unique_ptr<AdapterBank> bank_;
    std::unique_ptr<GradientExchange> exchange_;
};

TEST_P(Exchange, TakesThePlannedMemory) {
    const std::size_t before = backend_->memory().current;
    const auto another = make_gradient_exchange(session(), case_.job, plan_, *backend_);
    EXPECT_EQ(backend_->memory().current - before, exchange_bytes(plan_));
}

TEST_P(Exchange, AddsTheCopiesInTheirOrder) {
    begin(0, one, own_gradients(one), 1.0 + session().rank());
    const GradientExchange::Sums sums = exchange_->finish(0, {});
    const double own_squares = check_sums(one);
    const int ranks = session().size();
    EXPECT_DOUBLE_EQ(sums.loss, 0.5 * ranks * (ranks + 1));
    for (const double other : gather_numbers(session(), sums.squares)) {
        EXPECT_EQ(other, sums.squares);
    }
    // The last rank alone, or the last two as a pipeline, have the whole adapter.
    const RankPlace place = place_of(plan_, ranks - 1);
    const auto stages = static_cast<int>(plan_.replicas[place.replica].stages.size());
    const std::vector<double> squares = gather_numbers(session(), own_squares);
    double wanted = 0.0;
    for (int rank = ranks - stages; rank < ranks; ++rank) {
        wanted += squares[static_cast<std::size_t>(rank)];
    }
    EXPECT_NEAR(sums.squares / wanted, 1.0, 1e-12);
}

/// Nothing waits as they begin, and each rank goes on with them when it likes.
TEST_P(Exchange, OfSeveralBatchesGoesOnBesideOtherWork) {
    for (int round = 0; round < 3; ++round) {
        begin(2 * round, one, own_gradients(one), 1.0);
        begin(2 * round + 1, two, own_gradients(two), 2.0);
        for (int i = 0; i < 10 * session().rank(); ++i) exchange_->poll();
        EXPECT_EQ(exchange_->finish(2 * round, {}).loss, 1.0 * session().size());
        EXPECT_EQ(exchange_->finish(2 * round + 1, {}).loss, 2.0 * session().size());
        check_sums(one);
        check_sums(two);
    }
}

TEST_P(Exchange, GoesOnWhereverARankWaitsForOthers) {
    const WhileWaiting exchanging([&] { exchange_->poll(); });
    begin(0, one, own_gradients(one), 1.0);
    const std::unique_ptr<RankGroup> all = make_mpi_rank_group(session(), 0);
    if (session().rank() + 1 == session().size()) exchange_->finish(0, {});
    std::vector<float> values(4, 1.0F);
    all->all_reduce(matrix(values.data(), DType::f32, 1, 4));  // where the others wait for the last
    EXPECT_EQ(values[0], static_cast<float>(session().size()));
    if (session().rank() + 1 < session().size()) exchange_->finish(0, {});
    check_sums(one);
}

TEST_P(Exchange, SpreadsWhatIsNotFinite) {
    std::vector<float> gradients = own_gradients(one);
    if (session().rank() + 1 == session().size()) {
        gradients.back() = std::numeric_limits<float>::infinity();
    }
    begin(0, one, gradients, 0.0);
    EXPECT_FALSE(std::isfinite(exchange_->finish(0, {}).squares));
}

INSTANTIATE_TEST_SUITE_P(Backends, Exchange, ::testing::Values("cpu", "cuda"),
                         [](const auto& backend) { return backend.param; });

}  // namespace
}  // namespace loratrain::mpi_test
