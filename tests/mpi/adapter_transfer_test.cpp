#include "train/checkpoint/adapter_transfer.h"

#include "backend/make_backend.h"
#include "base/rng.h"
#include "base/tensor.h"
#include "mpi/gather_adapter.h"
#include "mpi/mpi_main.h"
#include "plan/deploy/partition_layers.h"
#include "plan/place.h"
#include "support/small_model.h"
#include "train/stage_run.h"
#include "unit/model/shared_stages.h"

namespace loratrain::mpi_test {
namespace {

using test::sharing_stages;
using test::small_model;

constexpr std::int32_t layers = 7;

Job two_adapters() {
    Job job;
    AdapterJob adapter;
    adapter.name = "all";
    adapter.r = 3;
    job.adapters.push_back(adapter);
    adapter.name = "some";
    adapter.r = 5;
    adapter.targets = {true, false, true, false, false, false, true};
    job.adapters.push_back(adapter);
    return job;
}

/// Values that depend on a tensor's name alone, not on where it lies.
std::vector<NamedTensor> marked(std::vector<NamedTensor> tensors, std::uint64_t part) {
    for (NamedTensor& tensor : tensors) {
        tensor.values.resize(static_cast<std::size_t>(element_count(tensor.shape)));
        for (std::size_t i = 0; i < tensor.values.size(); ++i) {
            tensor.values[i] = uniform_float(mix_key(hash_name(tensor.name), part), i);
        }
    }
    return tensors;
}

/// A model that up to four lanes can share.
ModelSpec shared_model() {
    ModelSpec model = small_model(layers);
    model.vocab_size = 77;
    model.dense().size = 64;
    return model;
}

Plan plan_of(const std::vector<StagePlan>& stages, std::int32_t tensor) {
    Plan plan;
    plan.model = shared_model();
    plan.replicas.resize(1);
    plan.replicas[0].tensor = tensor;
    plan.replicas[0].stages = stages;
    number_ranks(plan.replicas);
    plan.adapter_capacity = 2;
    plan.first_admitted = {AdapterId{0}, AdapterId{1}};
    return plan;
}

/// What the root gathers from stages that hold marked values is the whole marked adapter.
void expect_whole_adapters(const std::vector<StagePlan>& stages, std::int32_t tensor = 1) {
    const Job job = two_adapters();
    const Plan plan = plan_of(stages, tensor);
    const auto backend = make_backend("cpu", {1, 0});
    const LaneGroups lanes(session(), plan, *backend);
    const StagePlan& stage = plan.replicas[0].stages[place_of(plan, session().rank()).stage];
    AdapterBank bank(job, only_replica(plan), stage, *backend, lanes.of_rank());
    constexpr AdapterBank::Part parts[] = {
        AdapterBank::Part::parameters, AdapterBank::Part::first_moments,
        AdapterBank::Part::second_moments, AdapterBank::Part::gradients};
    for (const AdapterId adapter : {AdapterId{0}, AdapterId{1}}) {
        const AdapterJob& spec = job.adapter(adapter);
        for (std::uint64_t p = 0; p < std::size(parts); ++p) {
            bank.upload_cut(
                adapter, parts[p],
                marked(adapter_tensors(spec, plan.model, layers_of(stage, adapter), parts[p]), p));
            const auto got = gather_adapter(session(), job, plan, bank, adapter, parts[p]);
            if (!session().is_root()) {
                EXPECT_TRUE(got.empty());
                continue;
            }
            const auto want = marked(adapter_tensors(spec, plan.model, {0, layers}, parts[p]), p);
            ASSERT_EQ(got.size(), want.size());
            for (std::size_t i = 0; i < want.size(); ++i) {
                EXPECT_EQ(got[i].name, want[i].name);
                EXPECT_EQ(got[i].shape, want[i].shape);
                EXPECT_EQ(got[i].values, want[i].values) << got[i].name;
            }
        }
    }
}

TEST(GatherAdapter, EqualsTheLayoutOfOneRank) {
    expect_whole_adapters(
        partition_layers(layers, session().size(), CostModel{}, MicrobatchLoad{}));
}

/// Every number of lanes that the ranks can be cut into.
TEST(GatherAdapter, FromTheLanesOfStages) {
    for (const std::int32_t tensor : {2, 4}) {
        const int ranks = session().size();
        if (ranks % tensor != 0) continue;
        expect_whole_adapters(
            partition_layers(layers, ranks / tensor, CostModel{}, MicrobatchLoad{}), tensor);
        if (ranks > tensor) {
            expect_whole_adapters(sharing_stages(layers, ranks / tensor, 1), tensor);
        }
    }
}

TEST(GatherAdapter, RefusesLanesThatDiffer) {
    if (session().size() % 2 != 0) GTEST_SKIP() << "needs an even number of ranks";
    const Job job = two_adapters();
    const Plan plan =
        plan_of(partition_layers(layers, session().size() / 2, CostModel{}, MicrobatchLoad{}), 2);
    const auto backend = make_backend("cpu", {1, 0});
    const LaneGroups lanes(session(), plan, *backend);
    const RankPlace place = place_of(plan, session().rank());
    AdapterBank bank(job, only_replica(plan), plan.replicas[0].stages[place.stage], *backend,
                     lanes.of_rank());
    auto own = bank.download(AdapterId{0}, AdapterBank::Part::parameters);
    if (session().rank() == 1) own.front().values.back() += 1.0F;  // q's A, whole on both lanes
    bank.upload(AdapterId{0}, AdapterBank::Part::parameters, own);
    const auto gather = [&] {
        gather_adapter(session(), job, plan, bank, AdapterId{0}, AdapterBank::Part::parameters);
    };
    if (!session().is_root()) return gather();
    try {
        gather();
        ADD_FAILURE() << "nothing was said of lanes that differ";
    } catch (const Error& error) {
        EXPECT_NE(std::string(error.what()).find("ranks 0 and 1 should have the same values"),
                  std::string::npos)
            << error.what();
    }
}

/// A pipeline of all ranks but the last one, and that alone: what the two have of the adapter is
/// compared, unit by unit.
TEST(GatherAdapter, RefusesReplicasThatDiffer) {
    const int ranks = session().size();
    if (ranks < 2) GTEST_SKIP() << "needs two ranks";
    const Job job = two_adapters();
    Plan plan = plan_of(partition_layers(layers, ranks - 1, CostModel{}, MicrobatchLoad{}), 1);
    plan.replicas.push_back(
        plan_of(partition_layers(layers, 1, CostModel{}, MicrobatchLoad{}), 1).replicas.front());
    number_ranks(plan.replicas);
    const RankPlace place = place_of(plan, session().rank());
    const ReplicaPlan& replica = plan.replicas[place.replica];
    const auto backend = make_backend("cpu", {1, 0});
    AdapterBank bank(job, view_of(plan, replica), replica.stages[place.stage], *backend);
    const auto gather = [&] {
        return gather_adapter(session(), job, plan, bank, AdapterId{0},
                              AdapterBank::Part::parameters);
    };
    EXPECT_EQ(gather().empty(), !session().is_root());
    auto own = bank.download(AdapterId{0}, AdapterBank::Part::parameters);
    if (session().rank() + 1 == ranks) own.back().values.back() += 1.0F;
    bank.upload(AdapterId{0}, AdapterBank::Part::parameters, own);
    if (!session().is_root()) {
        gather();
        return;
    }
    try {
        gather();
        ADD_FAILURE() << "nothing was said of replicas that differ";
    } catch (const Error& error) {
        const std::string words =
            cat("ranks ", ranks - 2, " and ", ranks - 1, " should have the same values");
        EXPECT_NE(std::string(error.what()).find(words), std::string::npos) << error.what();
    }
}

TEST(GatherAdapter, FromStagesThatShareLayers) {
    expect_whole_adapters(sharing_stages(layers, session().size(), 1));
}

}  // namespace
}  // namespace loratrain::mpi_test
