#include "selftest/reference_training.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "support/files.h"

namespace loratrain {
namespace {

TEST(HostMatrices, ErrorsAreRelativeAndNotHidden) {
    EXPECT_EQ(relative_error({1.0, -1.0}, {1.0, -1.0}), 0.0);
    EXPECT_NEAR(relative_error({2.0, -2.0}, {2.0, -2.5}), 0.5 / std::sqrt((4.0 + 6.25) / 2.0),
                1e-15);
    EXPECT_TRUE(std::isinf(relative_error({1.0}, {1.0, 2.0})));
    EXPECT_TRUE(std::isinf(relative_error({}, {})));
    const double nan = std::numeric_limits<double>::quiet_NaN();
    EXPECT_TRUE(std::isinf(relative_error({nan, 1.0}, {1.0, 1.0})));
    EXPECT_TRUE(std::isinf(relative_error({1.0, nan}, {1.0, 1.0})));
}

TEST(ReferenceLoss, IsThatOfEqualLogitsWithoutAHead) {
    TinyModel model = make_tiny_model();
    model.head = HostMatrix(model.head.rows, model.head.cols);
    const auto samples = make_tiny_samples(model.spec.vocab_size, 0);
    EXPECT_NEAR(reference_loss(model, make_tiny_adapters(model)[0], samples),
                std::log(static_cast<double>(model.spec.vocab_size)), 1e-12);
}

TEST(ReferenceLoss, IsCausal) {
    const TinyModel model = make_tiny_model();
    const TinyAdapter adapter = make_tiny_adapters(model)[1];
    std::vector<TinySample> one{{{1, 2, 3, 4}, {-100, -100, 3, -100}}};
    const double before = reference_loss(model, adapter, one);
    one[0].tokens[3] = 9;
    EXPECT_EQ(reference_loss(model, adapter, one), before);
    one[0].tokens[0] = 9;
    EXPECT_NE(reference_loss(model, adapter, one), before);
}

TEST(ReferenceTraining, LowersTheLossAndMovesEveryTensor) {
    const TinyModel model = make_tiny_model();
    const auto samples = make_tiny_samples(model.spec.vocab_size, 1);
    TinyTraining training;
    training.steps = 1;
    const TinyAdapter before = make_tiny_adapters(model)[1];
    TinyAdapter after = before;
    const ReferenceCurve curve = train_reference(model, training, samples, after);
    ASSERT_EQ(curve.losses.size(), 1U);
    EXPECT_LT(reference_loss(model, after, samples), curve.losses[0]);
    EXPECT_GT(curve.grad_norms[0], 0.0);
    for (std::size_t i = 0; i < before.factors.size(); ++i) {
        EXPECT_GT(relative_error(after.factors[i].a.values, before.factors[i].a.values), 0.0);
        EXPECT_GT(relative_error(after.factors[i].b.values, before.factors[i].b.values), 0.0);
    }
}

TEST(TinyAdapters, ComeBackFromTheirDirectory) {
    const test::TempDir dir;
    const TinyAdapter adapter = make_tiny_adapters(make_tiny_model())[0];
    write_tiny_adapter(adapter, dir.file("peft"));
    TinyAdapter other = adapter;
    for (TinyFactors& factors : other.factors)
        factors.a.values.assign(factors.a.values.size(), 0.0);
    const TinyAdapter back = read_tiny_adapter(other, dir.file("peft"));
    for (std::size_t i = 0; i < back.factors.size(); ++i) {
        EXPECT_EQ(back.factors[i].a.values, adapter.factors[i].a.values);
        EXPECT_EQ(back.factors[i].b.values, adapter.factors[i].b.values);
    }
}

}  // namespace
}  // namespace loratrain
