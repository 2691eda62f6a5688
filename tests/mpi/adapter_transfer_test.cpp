#include "train/checkpoint/adapter_transfer.h"

#include "backend/make_backend.h"
#include "base/rng.h"
#include "base/shape.h"
#include "mpi/mpi_main.h"
#include "plan/deploy/partition_layers.h"
#include "support/small_model.h"
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

/// What the root gathers from stages that hold marked values is the whole marked adapter.
void expect_whole_adapters(const std::vector<StagePlan>& stages) {
    const Job job = two_adapters();
    Plan plan;
    plan.model = small_model(layers);
    plan.replicas.resize(1);
    plan.replicas[0].stages = stages;
    const StagePlan& stage = stages[static_cast<std::size_t>(session().rank())];
    const auto backend = make_backend("cpu", {1, 0});
    plan.adapter_capacity = 2;
    plan.first_admitted = {AdapterId{0}, AdapterId{1}};
    AdapterBank bank(job, only_replica(plan), stage, *backend);
    constexpr AdapterBank::Part parts[] = {
        AdapterBank::Part::parameters, AdapterBank::Part::first_moments,
        AdapterBank::Part::second_moments, AdapterBank::Part::gradients};
    for (const AdapterId adapter : {AdapterId{0}, AdapterId{1}}) {
        const AdapterJob& spec = job.adapter(adapter);
        for (std::uint64_t p = 0; p < std::size(parts); ++p) {
            bank.upload(
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

TEST(GatherAdapter, FromStagesThatShareLayers) {
    expect_whole_adapters(sharing_stages(layers, session().size(), 1));
}

}  // namespace
}  // namespace loratrain::mpi_test
