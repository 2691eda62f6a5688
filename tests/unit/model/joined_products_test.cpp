#include "backend/cpu/cpu_backend.h"
#include "unit/model/small_stage.h"

namespace loratrain::test {
namespace {

constexpr double joined_tolerance = 2e-5;  // OpenBLAS adds wide products in another order
constexpr std::array<bool, linear_group_count> both{true, false, true, false};

/// Counts products.
class CountingBackend : public CpuBackend {
  public:
    CountingBackend() : CpuBackend(1) {}
    void gemm(const Gemm& op) override {
        ++products;
        CpuBackend::gemm(op);
    }
    int products = 0;
};

/// Unequal ranks, so that the columns of a microbatch change with its segments.
std::vector<AdapterJob> plain_adapters() {
    std::vector<AdapterJob> adapters{small_adapter("a", 12), small_adapter("b", 17),
                                     small_adapter("c", 9), small_adapter("d", 5)};
    adapters[1].targets = {true, false, true, false, false, true, false};   // q, v, up
    adapters[3].targets = {false, false, false, true, false, false, true};  // none of the groups
    return adapters;
}

std::vector<AdapterJob> adapters_of_all_forms() {
    std::vector<AdapterJob> adapters{small_adapter("half", 12, 0.5), small_dora("dora", 17),
                                     small_vera("vera", 9, 0.2), small_dora("dropping", 5, 0.3)};
    adapters.push_back(small_adapter("residual", 4, 0.2));
    adapters.back().init_lora_weights = Initial::olora;
    adapters.back().form = form_of(adapters.back());
    adapters[1].targets = {true, false, true, false, true, true, true};
    return adapters;
}

/// Loss of each sample of the microbatch.
std::vector<float> evaluated(WholeStage& whole, bool base_alone) {
    whole.terms.evaluation = true;
    whole.terms.base_alone = base_alone;
    whole.forward_in_slot(0);
    whole.terms.evaluation = whole.terms.base_alone = false;
    std::vector<double> losses(whole.microbatch.segments.size());
    whole.backend->download(losses.data(), whole.stage->sums().sample_nll,
                            losses.size() * sizeof(double));
    return {losses.begin(), losses.end()};
}

/// Losses of microbatches of several adapters, evaluated and trained in turn, and gradients.
std::vector<std::vector<float>> train_in_turn(const SmallCase& test_case) {
    WholeStage whole(test_case);
    const std::vector<Segment> all = whole.microbatch.segments;
    std::vector<std::vector<float>> seen;
    for (const std::vector<std::size_t>& adapters :
         {std::vector<std::size_t>{0, 1, 2, 3}, {0}, {2, 0}, {3}, {1, 2}, {0, 1, 2, 3}}) {
        whole.microbatch.segments.clear();
        for (const std::size_t a : adapters) whole.microbatch.segments.push_back(all[a]);
        whole.pack();
        for (const bool base_alone : {false, true}) {
            seen.push_back(evaluated(whole, base_alone));
        }
        for (const std::size_t a : adapters) {
            seen.push_back({static_cast<float>(whole.forward(a))});
        }
        whole.backward();
        for (const std::size_t a : adapters) {
            seen.push_back(flat(whole.gradients(a)));
            const auto adapter = static_cast<AdapterId>(a);
            whole.stage->finish_batch(adapter, false);
            whole.stage->set_total(adapter, 1.0);
            whole.stage->step(adapter, 1e-3);
        }
    }
    return seen;
}

void expect_equal_to_separate(SmallCase test_case) {
    ReplicaPlan& replica = test_case.plan.replicas[0];
    const auto separate = train_in_turn(test_case);
    for (const auto& groups : {both, {true, false, false, false}, {false, false, true, false}}) {
        replica.joined = groups;
        const auto joined = train_in_turn(test_case);
        ASSERT_EQ(joined.size(), separate.size());
        for (std::size_t i = 0; i < joined.size(); ++i) {
            EXPECT_GT(norm(separate[i]), 0.0) << i;
            EXPECT_LE(distance(joined[i], separate[i]), joined_tolerance) << i;
        }
    }
}

ModelSpec model_with_biases() {
    ModelSpec model = small_model();
    model.attention().qkv_bias = model.attention().o_bias = model.dense().bias = true;
    return model;
}

TEST(JoinedProducts, AreOneOfEachGroup) {
    SmallCase test_case(small_model(), plain_adapters());
    const auto products = [&] {
        WholeStage whole(test_case);
        whole.stage.reset();
        auto backend = std::make_unique<CountingBackend>();
        const CountingBackend& counting = *backend;
        whole.backend = std::move(backend);
        whole.stage = test_case.stage(*whole.backend);
        fill_factors(whole.job, whole.stage->bank());
        whole.forward(0);
        return counting.products;
    };
    const int separate = products();
    test_case.plan.replicas[0].joined = both;
    EXPECT_EQ(separate - products(), 3 * test_case.plan.model.layers);
}

TEST(JoinedProducts, EqualSeparateOnes) {
    SmallCase test_case(small_model(), plain_adapters());
    ASSERT_EQ(test_case.plan.replicas[0].pad_columns, 48);
    expect_equal_to_separate(test_case);
    test_case.plan.backend = BackendKind::cuda;  // columns that last
    test_case.plan.replicas[0].pad_columns = 48;
    expect_equal_to_separate(test_case);
}

TEST(JoinedProducts, BySegment) {
    SmallCase test_case(small_model(), plain_adapters());
    for (const std::int32_t columns : {0, 32}) {
        test_case.plan.replicas[0].pad_columns = columns;
        expect_equal_to_separate(test_case);
    }
}

TEST(JoinedProducts, WithAllFormsOfAdapters) {
    SmallCase test_case(small_model(), adapters_of_all_forms());
    expect_equal_to_separate(test_case);
    test_case.plan.replicas[0].pad_columns = 16;
    expect_equal_to_separate(test_case);
}

TEST(JoinedProducts, OfLayersWithBiasesAndNorms) {
    ModelSpec model = model_with_biases();
    expect_equal_to_separate({model, adapters_of_all_forms()});
    model.attention().qk_norm = true;  // what of the outputs lies side by side
    expect_equal_to_separate({model, plain_adapters()});
}

TEST(JoinedProducts, OfLayersThatAreComputedAgainOrStream) {
    SmallCase test_case(model_with_biases(), plain_adapters());
    test_case.plan.replicas[0].recompute = Recompute::layer;
    expect_equal_to_separate(test_case);
    test_case.plan.replicas[0].stages[0].resident_layers = 1;
    expect_equal_to_separate(test_case);
}

TEST(JoinedProducts, OfStagedWeights) {
    expect_equal_to_separate({small_model(), adapters_of_all_forms(), 1, Precision::bf16});
    ModelSpec model = quantizable_model();
    for (const WeightFormat format : {WeightFormat::nf4, WeightFormat::int8}) {
        model.quantization = {format, SourceType::bf16};
        expect_equal_to_separate({model, plain_adapters()});
    }
}

/// Codes of several linears are multiplied together without it.
TEST(JoinedProducts, LeaveCodesAsTheyAre) {
    SmallCase test_case(small_model(), plain_adapters());
    test_case.plan.fp8_linears = true;
    const auto before = train_in_turn(test_case);
    test_case.plan.replicas[0].joined = both;
    EXPECT_EQ(train_in_turn(test_case), before);
}

}  // namespace
}  // namespace loratrain::test
