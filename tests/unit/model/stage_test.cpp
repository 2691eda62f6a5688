#include "unit/model/small_stage.h"

namespace loratrain::test {
namespace {

/// Loss after moving one tensor of an adapter by `h` along `direction`.
double moved_loss(WholeStage& whole, std::size_t adapter, std::size_t tensor,
                  const std::vector<float>& direction, double h) {
    const auto original = whole.parameters(adapter);
    auto moved = original;
    for (std::size_t i = 0; i < direction.size(); ++i) {
        moved[tensor].values[i] += static_cast<float>(h * direction[i]);
    }
    whole.upload(adapter, moved);
    const double loss = whole.forward(adapter);
    whole.upload(adapter, original);
    return loss;
}

/// Along its own gradient, every tensor's loss rises by the gradient's norm.
void expect_gradients_are_slopes(WholeStage& whole) {
    whole.forward(0);
    whole.backward();
    for (std::size_t a = 0; a < whole.job.adapters.size(); ++a) {
        const auto gradients = whole.gradients(a);
        for (std::size_t t = 0; t < gradients.size(); ++t) {
            const double size = norm(gradients[t].values);
            ASSERT_GT(size, 1e-5) << gradients[t].name;
            std::vector<float> direction = gradients[t].values;
            for (float& value : direction) value = static_cast<float>(value / size);
            const double h = 3e-2;
            const double slope =
                (moved_loss(whole, a, t, direction, h) - moved_loss(whole, a, t, direction, -h)) /
                (2 * h);
            EXPECT_NEAR(slope, size, 0.02 * size + 2e-5)
                << whole.job.adapters[a].name << " " << gradients[t].name;
        }
    }
}

std::vector<AdapterJob> with_dropout() {
    return {small_adapter("half", 4, 0.5), small_adapter("none", 3), small_adapter("some", 2, 0.2)};
}

TEST(Stage, GradientsWithDropoutAreSlopes) {
    WholeStage whole(SmallCase(small_model(), with_dropout()));
    expect_gradients_are_slopes(whole);
}

TEST(Stage, GradientsOfTheSegmentedPathAreSlopes) {
    SmallCase test_case(small_model(), with_dropout());
    test_case.plan.replicas[0].pad_columns = 0;
    WholeStage whole(test_case);
    expect_gradients_are_slopes(whole);
}

TEST(Stage, SaysWhenItIsBetweenLayers) {
    const SmallCase test_case(small_model(), {small_adapter("a", 4)});
    WholeStage whole(test_case);
    int calls = 0;
    whole.stage->between_layers([&calls] { ++calls; });
    whole.forward(0);
    EXPECT_EQ(calls, test_case.plan.model.layers);
    whole.backward();
    EXPECT_EQ(calls, 2 * test_case.plan.model.layers);
    whole.stage->between_layers({});
    whole.forward(0);
    EXPECT_EQ(calls, 2 * test_case.plan.model.layers);
}

TEST(Stage, DropoutIsDrawnAnewInEveryStep) {
    WholeStage whole(SmallCase(small_model(), with_dropout()));
    const double first = whole.forward(0);
    EXPECT_EQ(whole.forward(0), first);
    for (Segment& segment : whole.microbatch.segments) ++segment.step;
    EXPECT_GT(std::abs(whole.forward(0) - first), 1e-4);
}

TEST(Stage, SegmentedPathEqualsAugmentedMatrix) {
    for (const double dropout : {0.0, 0.3}) {
        SmallCase test_case(small_model(), {small_adapter("a", 5), small_adapter("b", 7, dropout)});
        test_case.job.adapters[1].targets = {true, true, false, true, false, true, true};
        ASSERT_GT(test_case.plan.replicas[0].pad_columns, 0);
        WholeStage augmented(test_case);
        for (const std::size_t a : {0U, 1U}) augmented.forward(a);
        augmented.backward();
        for (const std::int32_t too_narrow : {0, 8}) {
            test_case.plan.replicas[0].pad_columns = too_narrow;
            WholeStage segmented(test_case);
            for (const std::size_t a : {0U, 1U}) {
                EXPECT_NEAR(segmented.forward(a), augmented.forward(a), 1e-6);
            }
            segmented.backward();
            for (const std::size_t a : {0U, 1U}) {
                const auto gradients = flat(segmented.gradients(a));
                EXPECT_LE(distance(gradients, flat(augmented.gradients(a))), 2e-6);
            }
        }
    }
}

/// Forward and backward of the microbatch with the segments of these adapters.
void run_segments(WholeStage& whole, const std::vector<std::size_t>& adapters) {
    std::vector<Segment> segments;
    for (const std::size_t a : adapters) segments.push_back(whole.microbatch.segments[a]);
    std::swap(segments, whole.microbatch.segments);
    whole.pack();
    whole.forward_in_slot(0);
    whole.backward();
    std::swap(segments, whole.microbatch.segments);
}

TEST(Stage, ColumnsOfTheirOwnOnAGpuEqualThoseOfTheMicrobatch) {
    SmallCase test_case(small_model(), {small_adapter("a", 5), small_adapter("b", 7, 0.3),
                                        small_adapter("c", 4), small_adapter("d", 2)});
    test_case.job.adapters[1].targets = {true, true, false, true, false, true, true};
    WholeStage side_by_side(test_case);
    test_case.plan.backend = BackendKind::cuda;
    WholeStage own(test_case);
    double sum = 9.0;
    for (const std::vector<std::size_t>& adapters :
         {std::vector<std::size_t>{0, 2}, {2, 0}, {1}, {3, 1, 0}, {0, 1, 2, 3}, {2}}) {
        for (WholeStage* whole : {&side_by_side, &own}) {
            run_segments(*whole, adapters);
            whole->backend->upload(whole->stage->sums().total + 2, &sum, sizeof(sum));
            whole->stage->step(static_cast<AdapterId>(2), 1e-2);
        }
    }
    for (const std::size_t a : {0U, 1U, 2U, 3U}) {
        EXPECT_LE(distance(flat(own.parameters(a)), flat(side_by_side.parameters(a))), 2e-6);
        if (a == 2) continue;  // none since its last step
        EXPECT_LE(distance(flat(own.gradients(a)), flat(side_by_side.gradients(a))), 2e-6);
    }
}

TEST(Stage, StagedBf16IsCloseToFp32) {
    const std::vector<AdapterJob> adapters{small_adapter("a", 5), small_adapter("b", 7, 0.3)};
    WholeStage full(SmallCase(small_model(), adapters));
    WholeStage staged(SmallCase(small_model(), adapters, 1, Precision::bf16));
    for (const std::size_t a : {0U, 1U}) {
        const double loss = full.forward(a);
        EXPECT_NEAR(staged.forward(a), loss, 1e-2 * loss);
        EXPECT_NE(staged.forward(a), loss);
    }
    full.backward();
    staged.backward();
    for (const std::size_t a : {0U, 1U}) {
        EXPECT_LE(distance(flat(staged.gradients(a)), flat(full.gradients(a))), 3e-2);
    }
}

TEST(Stage, EvaluationHasNoDropoutAndCountsPerSample) {
    WholeStage whole(SmallCase(small_model(), with_dropout()));
    whole.terms.evaluation = true;
    whole.forward(0);
    std::vector<double> with(3);
    whole.backend->download(with.data(), whole.stage->sums().sample_nll, 3 * sizeof(double));
    for (AdapterJob& adapter : whole.job.adapters) adapter.lora_dropout = 0.0;
    whole.terms.evaluation = false;
    for (std::size_t a = 0; a < 3; ++a) EXPECT_NEAR(whole.forward(a) * 11.0, with[a], 1e-4);
}

}  // namespace
}  // namespace loratrain::test
