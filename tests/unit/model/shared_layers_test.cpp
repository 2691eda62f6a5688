#include "unit/model/shared_stages.h"
#include "unit/model/stage_chain.h"

namespace loratrain::test {
namespace {

constexpr std::int32_t layers = 5;
constexpr double limit = 1e-5;
constexpr double rounding = 1e-7;  // norms of what is zero but for it, on some processors

const std::vector<std::vector<Cut>>& all_cuts() {
    static const std::vector<std::vector<Cut>> cuts{
        {{2, up_to(1)}},
        {{2, up_to(3)}},
        {{3, from(1)}},
        {{1, from(3)}},
        {{2, from(2)}, {3}},
        {{1, up_to(2)}, {3, up_to(2)}},
        {{1, up_to(1)}, {3, from(2)}},
        {{1, from(2)}, {3, up_to(3)}},
        {{1, from(3)}, {2, from(1)}},
        {{2, up_to(4)}, {3, from(4)}},  // one of the neighbours computes no adapter of the job
    };
    return cuts;
}

std::string text(const std::vector<Cut>& cuts) {
    std::string words = "cuts";
    for (const Cut& cut : cuts) {
        words += cat(" ", cut.layer, " [", cut.below.begin, ", ", cut.below.end, ")");
    }
    return words;
}

std::vector<AdapterJob> four_adapters(double dropout = 0.0) {
    std::vector<AdapterJob> adapters{small_adapter("a", 5), small_adapter("b", 7, dropout),
                                     small_adapter("c", 4), small_adapter("d", 2, dropout / 2)};
    adapters[1].targets = {true, true, false, true, false, true, true};
    return adapters;
}

SmallCase small_case(double dropout = 0.0, Precision precision = Precision::fp32) {
    return {small_model(layers), four_adapters(dropout), 1, precision};
}

SmallCase with_cuts(SmallCase test_case, const std::vector<Cut>& cuts) {
    test_case.plan.replicas[0].stages = cut_layers(layers, cuts);
    return test_case;
}

/// Samples of so many tokens for every adapter in turn.
void set_samples(WholeStage& whole, const std::vector<std::vector<std::int32_t>>& tokens) {
    for (std::size_t a = 0; a < tokens.size(); ++a) {
        auto& samples = whole.microbatch.segments[a].samples;
        samples.clear();
        for (const std::int32_t count : tokens[a]) {
            samples.push_back({static_cast<std::int32_t>(samples.size()), count});
        }
    }
    whole.pack();
}

std::vector<double> losses(const StageSums& sums, Backend& backend) {
    std::vector<double> values(4);
    backend.download(values.data(), sums.loss, values.size() * sizeof(double));
    return values;
}

void expect_near(const std::vector<double>& got, const std::vector<double>& want) {
    ASSERT_EQ(got.size(), want.size());
    for (std::size_t i = 0; i < want.size(); ++i) {
        EXPECT_NEAR(got[i], want[i], limit * std::abs(want[i])) << i;
    }
}

void expect_same_tensors(const std::vector<NamedTensor>& got,
                         const std::vector<NamedTensor>& want) {
    ASSERT_EQ(got.size(), want.size());
    for (std::size_t i = 0; i < want.size(); ++i) {
        ASSERT_EQ(got[i].name, want[i].name);
        if (norm(want[i].values) < rounding) {
            EXPECT_LT(norm(got[i].values), rounding) << want[i].name;
        } else {
            EXPECT_LE(distance(got[i].values, want[i].values), limit) << want[i].name;
        }
    }
}

/// One stage with all layers, and a chain of stages that share some.
struct Pair {
    Pair(const SmallCase& test_case, const std::vector<Cut>& cuts)
        : whole(test_case), chain(with_cuts(test_case, cuts)) {}

    /// Forward and backward of a microbatch with the segments of these adapters.
    void run(const std::vector<std::size_t>& adapters = {0, 1, 2, 3}) {
        std::vector<Segment> segments;
        segments.reserve(adapters.size());
        for (const std::size_t a : adapters) segments.push_back(whole.microbatch.segments[a]);
        std::swap(segments, whole.microbatch.segments);
        whole.pack();
        whole.forward_in_slot(0);
        whole.backward();
        chain.forward(whole);
        chain.backward(whole.microbatch.tokens());
        std::swap(segments, whole.microbatch.segments);
    }

    void expect_equal(const std::vector<std::size_t>& adapters = {0, 1, 2, 3}) const {
        expect_near(chain.sums([](const StageSums& sums) { return sums.loss; }, 4),
                    losses(whole.stage->sums(), *whole.backend));
        for (const std::size_t a : adapters) {
            SCOPED_TRACE(whole.job.adapters[a].name);
            expect_same_tensors(chain.tensors(a, AdapterBank::Part::gradients), whole.gradients(a));
        }
    }

    WholeStage whole;
    StageChain chain;
};

void expect_like_one_stage(const SmallCase& test_case) {
    for (const auto& cuts : all_cuts()) {
        SCOPED_TRACE(text(cuts));
        Pair pair(test_case, cuts);
        set_samples(pair.whole, {{12, 5}, {9}, {7, 4, 2}, {11}});
        pair.run();
        pair.expect_equal();
        for (std::size_t a = 0; a < 4; ++a) {
            EXPECT_GT(norm(flat(pair.whole.gradients(a))), 1e-3);
        }
    }
}

TEST(SharedLayers, LossesAndGradientsEqualThoseOfOneStage) {
    expect_like_one_stage(small_case());
}

TEST(SharedLayers, WithDropout) {
    expect_like_one_stage(small_case(0.5));
}

TEST(SharedLayers, SegmentedPath) {
    for (const double dropout : {0.0, 0.3}) {
        SmallCase test_case = small_case(dropout);
        test_case.plan.replicas[0].pad_columns = 0;
        expect_like_one_stage(test_case);
    }
}

TEST(SharedLayers, StagedBf16) {
    expect_like_one_stage(small_case(0.3, Precision::bf16));
}

TEST(SharedLayers, QueryAndKeyNormsAndBiases) {
    ModelSpec model = small_model(layers);
    model.attention().qk_norm = true;
    model.attention().qkv_bias = model.attention().o_bias = model.dense().bias = true;
    expect_like_one_stage({model, four_adapters(0.2)});
}

TEST(SharedLayers, MicrobatchesOfSomeAdapters) {
    for (const auto& cuts : all_cuts()) {
        SCOPED_TRACE(text(cuts));
        Pair pair(small_case(0.3), cuts);
        for (const std::vector<std::size_t>& adapters : {std::vector<std::size_t>{0},
                                                         {3},
                                                         {0, 1},
                                                         {2, 3},
                                                         {1, 2},
                                                         {0, 3},
                                                         {1},
                                                         {0, 1, 2, 3}}) {
            SCOPED_TRACE(cat("microbatch from adapter ", adapters.front()));
            pair.run(adapters);
            pair.expect_equal();
        }
    }
}

TEST(SharedLayers, RowsThatTheNeighbourComputesPassAsTheyAre) {
    Pair pair(small_case(), {{2, up_to(2)}});
    const std::vector<Cut> before{{2}};
    StageChain two_layers(with_cuts(small_case(), before));
    pair.run();
    two_layers.forward(pair.whole);
    const std::int64_t tokens = pair.whole.microbatch.tokens();
    const TensorView output = pair.chain.stage(0).output(0, tokens);
    const TensorView input = two_layers.stage(0).output(0, tokens);
    for (std::int64_t row = 0; row < tokens; ++row) {
        const auto values = [&](const TensorView& x) {
            const auto* start = static_cast<const float*>(x.offset(row, 0));
            return std::vector<float>(start, start + x.cols);
        };
        const bool passed = row >= 24;
        EXPECT_EQ(values(output) == values(input), passed) << row;
    }
}

TEST(SharedLayers, SamplesOfOneToken) {
    for (const auto& cuts : all_cuts()) {
        SCOPED_TRACE(text(cuts));
        Pair pair(small_case(0.3), cuts);
        for (const std::vector<std::vector<std::int32_t>>& tokens :
             {std::vector<std::vector<std::int32_t>>{{12, 1}, {1, 12}, {1, 5, 1}, {1, 1}},
              {{1}, {9}, {1}, {1, 2}},
              {{1}, {1}, {1}, {1}}}) {
            set_samples(pair.whole, tokens);
            pair.run();
            pair.expect_equal();
        }
    }
}

TEST(SharedLayers, ColumnsOfTheirOwnOnAGpu) {
    for (const auto& cuts : all_cuts()) {
        SCOPED_TRACE(text(cuts));
        SmallCase test_case = small_case(0.3);
        test_case.plan.backend = BackendKind::cuda;
        Pair pair(test_case, cuts);
        for (const std::vector<std::size_t>& adapters :
             {std::vector<std::size_t>{0, 2}, {1}, {0, 1, 3}, {0, 1, 2, 3}, {2}, {3}}) {
            pair.run(adapters);
            double sum = 9.0;
            pair.whole.backend->upload(pair.whole.stage->sums().total + 2, &sum, sizeof(sum));
            pair.whole.stage->step(AdapterId{2}, 1e-2);
            pair.chain.step(AdapterId{2}, sum);
        }
        pair.expect_equal({0, 1, 3});
        for (const std::size_t a : {0U, 1U, 2U, 3U}) {
            const auto got = pair.chain.tensors(a, AdapterBank::Part::parameters);
            EXPECT_LE(distance(flat(got), flat(pair.whole.parameters(a))), limit);
        }
    }
}

TEST(SharedLayers, EvaluationPerSample) {
    for (const auto& cuts : all_cuts()) {
        SCOPED_TRACE(text(cuts));
        Pair pair(small_case(0.5), cuts);
        set_samples(pair.whole, {{12, 1, 5}, {9}, {7, 4, 2}, {11}});
        pair.whole.terms = {{}, true};
        const auto samples = static_cast<std::size_t>(pair.whole.microbatch.samples());
        pair.whole.forward_in_slot(0);
        pair.chain.forward(pair.whole);
        const auto of_whole = [&](const double* from) {
            std::vector<double> values(samples);
            pair.whole.backend->download(values.data(), from, samples * sizeof(double));
            return values;
        };
        const StageSums& sums = pair.whole.stage->sums();
        expect_near(pair.chain.sums([](const StageSums& s) { return s.sample_nll; }, samples),
                    of_whole(sums.sample_nll));
        EXPECT_EQ(pair.chain.sums([](const StageSums& s) { return s.sample_wrong; }, samples),
                  of_whole(sums.sample_wrong));
    }
}

/// All gradients after microbatches of some adapters in two slots: the backward of the first comes
/// after the forward of the second.
std::vector<std::vector<float>> gradients_of_slots(SmallCase test_case, Recompute recompute) {
    test_case.plan.replicas[0].recompute = recompute;
    test_case.plan.replicas[0].max_in_flight = 4;
    StageChain chain(test_case);
    test_case.plan.replicas[0].stages = cut_layers(layers, {});
    WholeStage batch(test_case);
    const std::vector<Segment> all = batch.microbatch.segments;
    const std::vector<std::vector<Segment>> microbatches{
        all, {all[0]}, {all[2], all[3]}, {all[1], all[2]}, {all[3]}, all};
    return chain.gradients_of(batch, microbatches);
}

TEST(SharedLayers, RecomputationEqualsKeptActivationsToTheBit) {
    for (const auto& cuts : all_cuts()) {
        SCOPED_TRACE(text(cuts));
        for (const Precision precision : {Precision::fp32, Precision::bf16}) {
            const SmallCase test_case = with_cuts(small_case(0.3, precision), cuts);
            const auto kept = gradients_of_slots(test_case, Recompute::none);
            EXPECT_EQ(kept, gradients_of_slots(test_case, Recompute::layer));
            for (const auto& gradient : kept) EXPECT_GT(norm(gradient), 1e-3);
        }
    }
}

}  // namespace
}  // namespace loratrain::test
