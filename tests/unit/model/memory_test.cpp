#include "backend/cpu/cpu_backend.h"
#include "plan/memory/streamed_layers.h"
#include "unit/model/shared_stages.h"
#include "unit/model/small_stage.h"

namespace loratrain::test {
namespace {

/// What the backend allocates for every stage is what the plan says, to the byte; the buffers of
/// gradient messages belong to the pipeline runner, what messages travel in to the communicator.
void expect_exact(const SmallCase& test_case, Recompute recompute) {
    const Plan& plan = test_case.plan;
    EXPECT_EQ(plan.replicas[0].recompute, recompute);
    for (std::size_t s = 0; s < plan.replicas[0].stages.size(); ++s) {
        const auto backend = make_backend("cpu", {1, 0});
        const auto stage = test_case.stage(*backend, s);
        const MemoryPlan memory = stage_memory(test_case.job, only_replica(plan), s);
        const WorkspaceLayout layout =
            workspace_layout(only_replica(plan), plan.replicas[0].stages[s]);
        EXPECT_EQ(backend->memory().current, memory.total() - layout.messages - layout.links)
            << "stage " << s;
        EXPECT_EQ(memory.total(), plan.memory[s].total());
    }
}

void expect_exact(SmallCase test_case) {
    expect_exact(test_case, Recompute::none);
    test_case.job.parallel.recompute = Recompute::layer;
    test_case.make_plan_again();
    expect_exact(test_case, Recompute::layer);
    test_case.job.parallel.recomputed_layers = 1;
    test_case.make_plan_again();
    for (const StagePlan& stage : test_case.plan.replicas[0].stages) {
        EXPECT_EQ(stage.kept_layers, stage.layer_count - 1);
    }
    expect_exact(test_case, Recompute::layer);
    test_case.job.parallel.recomputed_layers.reset();
    for (const int layers : {1, 2, 9}) {
        test_case.job.parallel.offload = {Offload::Kind::some, layers};
        test_case.make_plan_again();
        expect_exact(test_case, Recompute::layer);
    }
}

void expect_exact_streamed(SmallCase test_case) {
    test_case.job.model.residency = {Residency::Kind::some, 2};
    test_case.make_plan_again();
    expect_exact(test_case, Recompute::none);
}

/// Of a plan that the test has changed.
void expect_exact_with_and_without_recomputation(SmallCase& test_case) {
    Plan& plan = test_case.plan;
    for (const Recompute recompute : {Recompute::none, Recompute::layer}) {
        plan.replicas[0].recompute = recompute;
        for (std::size_t s = 0; s < plan.memory.size(); ++s) {
            plan.memory[s] = stage_memory(test_case.job, only_replica(plan), s);
        }
        expect_exact(test_case, recompute);
    }
}

std::vector<AdapterJob> two_adapters() {
    std::vector<AdapterJob> adapters{small_adapter("a", 5), small_adapter("b", 3, 0.1)};
    adapters[1].targets = {true, false, true, false, false, true, false};
    return adapters;
}

std::vector<AdapterJob> three_adapters() {
    std::vector<AdapterJob> adapters = two_adapters();
    adapters.push_back(small_dora("c", 2));
    adapters.push_back(small_vera("d", 5));
    return adapters;
}

TEST(StageMemory, Plain) {
    for (const int ranks : {1, 2, 3}) expect_exact({small_model(), three_adapters(), ranks});
}

TEST(StageMemory, SharedLayers) {
    for (const Precision precision : {Precision::fp32, Precision::bf16}) {
        SmallCase test_case(small_model(5), three_adapters(), 3, precision);
        Plan& plan = test_case.plan;
        for (const std::vector<Cut>& cuts : {std::vector<Cut>{{1, up_to(1)}, {3, from(1)}},
                                             {{1, from(1)}, {3, from(1)}},
                                             {{2, up_to(1)}, {4}}}) {
            plan.replicas[0].stages = cut_layers(5, cuts);
            for (const Recompute recompute : {Recompute::none, Recompute::layer}) {
                plan.replicas[0].recompute = recompute;
                for (std::size_t s = 0; s < 3; ++s) {
                    plan.memory[s] = stage_memory(test_case.job, only_replica(plan), s);
                }
                expect_exact(test_case, recompute);
            }
        }
    }
}

TEST(StageMemory, QueryAndKeyNorms) {
    ModelSpec model = small_model();
    model.attention().qk_norm = true;
    model.attention().head_dim = 12;
    for (const int ranks : {1, 3}) expect_exact({model, three_adapters(), ranks});
}

TEST(StageMemory, ExpertSpec) {
    ModelSpec model = small_model();
    model.descriptions.front().mlp = ExpertSpec{5, 2, 12, true};
    expect_exact({model, {small_adapter("a", 5)}, 2});
    std::vector<AdapterJob> adapters{small_adapter("a", 5), small_adapter("b", 3)};
    adapters[0].targets = {true, false, false, false, true, true, true};
    adapters[1].targets = {false, false, false, false, false, false, true};
    adapters[1].optim = Optim::adamw_8bit;
    for (const int ranks : {1, 3}) expect_exact({model, adapters, ranks});
}

TEST(StageMemory, LayersWithoutExperts) {
    ModelSpec model = small_model(5);
    std::vector<LayerSpec> layers(5, model.layer(0));
    for (const std::size_t l : {1, 2, 4}) layers[l].mlp = ExpertSpec{5, 2, 12, true};
    model.set_layers(layers);
    std::vector<AdapterJob> adapters{small_adapter("a", 5), small_adapter("b", 3)};
    adapters[1].targets = {true, false, false, false, true, true, true};
    for (const Precision precision : {Precision::fp32, Precision::bf16}) {
        for (const int ranks : {1, 3}) expect_exact({model, adapters, ranks, precision});
        expect_exact_streamed({model, adapters, 1, precision});
    }
}

TEST(StageMemory, SharedExperts) {
    ExpertSpec experts{6, 2, 12, true};
    experts.shared_size = 20;
    experts.biased_choice = true;
    std::vector<AdapterJob> adapters{small_adapter("a", 5), small_adapter("b", 3)};
    adapters[1].targets = {true, false, false, false, true, true, true};
    adapters[1].targets[static_cast<std::size_t>(Linear::shared_down)] = true;
    for (const bool gate : {false, true}) {
        experts.shared_gate = gate;
        ModelSpec model = small_model(4);
        std::vector<LayerSpec> layers(4, model.layer(0));
        for (std::size_t l = 1; l < 4; ++l) layers[l].mlp = experts;
        model.set_layers(layers);
        for (const Precision precision : {Precision::fp32, Precision::bf16}) {
            for (const int ranks : {1, 3}) expect_exact({model, adapters, ranks, precision});
        }
    }
}

TEST(StageMemory, DeltaNets) {
    std::vector<AdapterJob> adapters{small_adapter("a", 5), small_adapter("b", 3)};
    adapters[1].targets.fill(false);
    adapters[1].targets[static_cast<std::size_t>(Linear::delta_out)] = true;
    adapters[1].targets[static_cast<std::size_t>(Linear::q)] = true;
    for (const DeltaLinears linears : {DeltaLinears::by_kind, DeltaLinears::by_key_head}) {
        const ModelSpec model = with_delta_nets(small_model(5), linears);
        for (const Precision precision : {Precision::fp32, Precision::bf16}) {
            for (const int ranks : {1, 3}) expect_exact({model, adapters, ranks, precision});
            expect_exact_streamed({model, adapters, 1, precision});
        }
    }
}

/// Without a latent row of queries where q_rank is 0.
ModelSpec with_latent(ModelSpec model, std::int64_t q_rank) {
    AttentionSpec& attention = model.attention();
    attention.kv_heads = attention.heads;
    attention.head_dim = 12;
    attention.rope->rotated = 0.5;
    attention.latent = LatentSpec{q_rank, 7, 6, 10};
    return model;
}

TEST(StageMemory, LatentAttention) {
    std::vector<AdapterJob> adapters{small_adapter("a", 5), small_adapter("b", 3)};
    adapters[1].targets.fill(false);
    adapters[1].targets[static_cast<std::size_t>(Linear::latent_kv_b)] = true;
    for (const std::int64_t q_rank : {0, 11}) {
        const ModelSpec model = with_latent(small_model(5), q_rank);
        for (const Precision precision : {Precision::fp32, Precision::bf16}) {
            for (const int ranks : {1, 3}) expect_exact({model, adapters, ranks, precision});
            expect_exact_streamed({model, adapters, 1, precision});
        }
    }
}

TEST(StageMemory, Texts) {
    for (const ModelSpec& model :
         {small_model(5), with_delta_nets(small_model(5), DeltaLinears::by_kind),
          with_latent(small_model(5), 11)}) {
        for (const Precision precision : {Precision::fp32, Precision::bf16}) {
            for (const int ranks : {1, 3}) {
                SmallCase test_case(model, {small_adapter("a", 5)}, ranks, precision);
                const MemoryPlan without = test_case.plan.memory[0];
                for (const std::int64_t samples : {5, 1000}) {
                    test_case.job.eval.generate = {samples, 9};
                    test_case.make_plan_again();
                    EXPECT_GT(test_case.plan.memory[0].workspace, without.workspace);
                    expect_exact(test_case, Recompute::none);
                }
            }
        }
    }
}

TEST(StageMemory, Biases) {
    ModelSpec model = small_model();
    model.attention().qkv_bias = model.attention().o_bias = model.dense().bias = true;
    expect_exact({model, three_adapters(), 2});
}

TEST(StageMemory, TiedHead) {
    ModelSpec model = small_model();
    model.tie_word_embeddings = true;
    for (const int ranks : {1, 2}) expect_exact({model, three_adapters(), ranks});
}

TEST(StageMemory, StagedBf16) {
    for (const int ranks : {1, 3}) {
        expect_exact({small_model(), three_adapters(), ranks, Precision::bf16});
    }
}

void expect_exact_in_fp8(const ModelSpec& model, const std::vector<AdapterJob>& adapters) {
    for (const int ranks : {1, 3}) {
        SmallCase test_case(model, adapters, ranks);
        Plan& plan = test_case.plan;
        plan.fp8_linears = true;
        for (const bool one_order : {false, true}) {
            plan.fp8_one_order = one_order;
            expect_exact_with_and_without_recomputation(test_case);
        }
    }
}

TEST(StageMemory, Fp8Linears) {
    ModelSpec model = small_model();
    model.attention().qkv_bias = true;
    expect_exact_in_fp8(model, two_adapters());
}

TEST(StageMemory, Fp8Experts) {
    ExpertSpec experts{5, 2, 16, true};
    experts.shared_size = 48;
    experts.shared_gate = true;
    ModelSpec model = small_model(3);
    std::vector<LayerSpec> layers(3, model.layer(0));
    for (const std::size_t l : {0, 2}) layers[l].mlp = experts;
    model.set_layers(layers);
    expect_exact_in_fp8(model, {small_adapter("a", 5)});
    std::vector<AdapterJob> adapters{small_adapter("a", 5), small_adapter("b", 3)};
    adapters[1].targets = {true, false, false, false, true, true, true};
    expect_exact_in_fp8(model, adapters);
}

TEST(StageMemory, QuantisedLinears) {
    ModelSpec model = quantizable_model();
    ModelSpec mixture = model;
    mixture.descriptions.front().mlp = ExpertSpec{5, 2, 192, true};
    for (const WeightFormat format :
         {WeightFormat::nf4, WeightFormat::int8, WeightFormat::e4m3, WeightFormat::e4m3_block}) {
        model.quantization = mixture.quantization = {format, SourceType::bf16};
        for (const Precision precision : {Precision::fp32, Precision::bf16}) {
            expect_exact({model, two_adapters(), 2, precision});
            expect_exact({mixture, {small_adapter("a", 5)}, 2, precision});
        }
    }
}

/// Allocates and loads as a GPU that computes in `compute`.
class AsIfOnGpu : public CpuBackend {
  public:
    explicit AsIfOnGpu(DType compute) : CpuBackend(1), compute_(compute) {}
    DType compute_dtype() const override { return compute_; }

  private:
    DType compute_;
};

TEST(StageMemory, WeightsOnGpus) {
    for (const Precision precision : {Precision::fp32, Precision::bf16}) {
        ModelSpec model = small_model();
        model.attention().qkv_bias = true;
        SmallCase test_case(model, two_adapters(), 2, precision);
        test_case.cluster.backend = BackendKind::cuda;
        test_case.make_plan_again();
        const Plan& plan = test_case.plan;
        ASSERT_EQ(plan.compute, precision == Precision::bf16 ? DType::bf16 : DType::f32);
        const ReplicaView view = only_replica(plan);
        for (std::size_t s = 0; s < view.replica.stages.size(); ++s) {
            AsIfOnGpu backend(plan.compute);
            const FrozenWeights weights(view, view.replica.stages[s], *test_case.weights, backend);
            EXPECT_EQ(backend.memory().current, plan.memory[s].weights) << "stage " << s;
        }
    }
}

TEST(StageMemory, LayersThatStream) {
    for (const std::int32_t resident : {0, 1, 4}) {
        for (const bool fp8 : {false, true}) {
            for (const Precision precision : {Precision::fp32, Precision::bf16}) {
                SmallCase test_case(small_model(6), two_adapters(), 1, precision);
                test_case.job.model.residency = {Residency::Kind::some, resident};
                test_case.make_plan_again();
                Plan& plan = test_case.plan;
                ASSERT_EQ(plan.replicas[0].stages[0].resident_layers, resident);
                plan.fp8_linears = plan.fp8_one_order = fp8;
                plan.memory[0] = stage_memory(test_case.job, only_replica(plan), 0);
                expect_exact(test_case, Recompute::none);
                EXPECT_EQ(plan.memory[0].host,
                          static_cast<std::uint64_t>(6 - resident) *
                              host_layer_bytes(streamed_layer(only_replica(plan))));
            }
        }
    }
}

TEST(StageMemory, JoinedProducts) {
    for (const Precision precision : {Precision::fp32, Precision::bf16}) {
        for (const int ranks : {1, 2}) {
            SmallCase test_case(small_model(), three_adapters(), ranks, precision);
            Plan& plan = test_case.plan;
            plan.replicas[0].joined = {true, false, true, false};
            const MemoryPlan larger = stage_memory(test_case.job, only_replica(plan), 0);
            const bool resident = precision == Precision::fp32;
            EXPECT_EQ(larger.weights > plan.memory[0].weights, resident);  // else none has pads
            expect_exact_with_and_without_recomputation(test_case);
        }
    }
}

TEST(StageMemory, PadNarrowerThanTheGroup) {
    std::vector<AdapterJob> adapters;
    for (int i = 0; i < 10; ++i) adapters.push_back(small_adapter(cat("a", i), 16));
    SmallCase test_case(small_model(), adapters);
    EXPECT_EQ(test_case.plan.replicas[0].pad_columns, 128);
    expect_exact(std::move(test_case));
    expect_exact({small_model(), adapters, 1, Precision::bf16});
}

}  // namespace
}  // namespace loratrain::test
