#include "model/objective/objective.h"

#include "plan/memory/memory_model.h"
#include "unit/model/small_stage.h"

namespace loratrain::test {
namespace {

constexpr std::int64_t labels = 11;  // of a sample

/// Over pairs of samples: (mean log p of the first - mean log p of the second - 1)².
class SquaredMargin final : public Objective {
  public:
    bool needs_first_pass() const override { return true; }

    void scales(const ObjectiveSamples& of, double denominator,
                std::span<float> scales) const override {
        for (std::size_t i = 0; i < scales.size(); ++i) {
            const double slope = (i % 2 == 0 ? -2.0 : 2.0) * excess(of, i - i % 2);
            scales[i] = static_cast<float>(slope / static_cast<double>(of.samples[i].targets) /
                                           denominator);
        }
    }

    void losses(const ObjectiveSamples& of, std::span<double> losses) const override {
        for (std::size_t i = 0; i < losses.size(); ++i) {
            losses[i] = i % 2 == 0 ? std::pow(excess(of, i), 2) : 0.0;
        }
    }

  private:
    static double excess(const ObjectiveSamples& of, std::size_t first) {
        const auto mean = [&](std::size_t i) { return of.nll[i] / of.samples[i].targets; };
        return mean(first + 1) - mean(first) - 1.0;
    }
};

/// Adapters named "pairs" have a loss over pairs.
const Objective& margins_or_cross_entropy(const AdapterJob& adapter) {
    static const SquaredMargin margin;
    return adapter.name == "pairs" ? margin : objective_of(adapter);
}

/// -log p of every sample's targets from the logits of the last forward, in fp64.
std::vector<double> sample_nll(WholeStage& whole) {
    const std::vector<float> logits = whole.stage->logits(0);
    const auto vocab = static_cast<std::size_t>(whole.plan.model.vocab_size);
    std::vector<double> nll;
    for (std::size_t row = 0; row < whole.packed.positions.size(); ++row) {
        if (whole.packed.positions[row] == 0) nll.push_back(0.0);
        const std::int32_t target = whole.packed.targets[row];
        if (target < 0) continue;
        double sum = 0.0;
        for (std::size_t j = 0; j < vocab; ++j) {
            sum += std::exp(static_cast<double>(logits[row * vocab + j]));
        }
        const auto own = row * vocab + static_cast<std::size_t>(target);
        nll.back() += std::log(sum) - static_cast<double>(logits[own]);
    }
    return nll;
}

double margin_loss(const std::vector<double>& nll) {
    return std::pow((nll[1] - nll[0]) / static_cast<double>(labels) - 1.0, 2);
}

/// One microbatch: a pair of samples of adapter 0, then a sample of adapter 1.
struct PairStage : WholeStage {
    PairStage(const std::string& first_adapter, std::int64_t vocabulary)
        : WholeStage(with_vocabulary(first_adapter, vocabulary), margins_or_cross_entropy) {
        microbatch.segments[0].samples = {{4, 12, labels}, {5, 12, labels}};
        terms.denominators = {2, labels};
        pack();
    }

    static SmallCase with_vocabulary(const std::string& first_adapter, std::int64_t vocabulary) {
        ModelSpec model = small_model();
        model.vocab_size = vocabulary;
        return {model, {small_adapter(first_adapter, 4), small_adapter("plain", 3)}};
    }

    double loss_sum(std::size_t adapter) { return forward(adapter) * 11.0; }

    void move(const std::vector<NamedTensor>& from, double h, const std::vector<float>& direction) {
        auto moved = from;
        std::size_t i = 0;
        for (NamedTensor& tensor : moved) {
            for (float& value : tensor.values) value += static_cast<float>(h * direction[i++]);
        }
        upload(0, moved);
    }

    /// The loss of the pair in fp64, with the factors of adapter 0 moved along a direction.
    double moved_loss(double h, const std::vector<float>& direction) {
        const auto original = parameters(0);
        move(original, h, direction);
        forward_in_slot(0);
        const double loss = margin_loss(sample_nll(*this));
        upload(0, original);
        return loss;
    }
};

/// Vocabularies whose logits of a microbatch are one chunk, and two that part a sample.
class ObjectiveOfPairs : public testing::TestWithParam<std::int64_t> {};

TEST_P(ObjectiveOfPairs, LossIsThatOfAnFp64Loop) {
    PairStage whole("pairs", GetParam());
    const double loss = whole.loss_sum(0);
    const std::vector<double> nll = sample_nll(whole);
    ASSERT_EQ(nll.size(), 3U);
    EXPECT_GT(std::abs(nll[1] - nll[0]), 0.1);
    EXPECT_NEAR(loss, margin_loss(nll), 1e-5);
    EXPECT_NEAR(whole.loss_sum(1), nll[2], 1e-4);
}

TEST_P(ObjectiveOfPairs, GradientIsTheSlopeOfItsLoss) {
    PairStage whole("pairs", GetParam());
    whole.forward_in_slot(0);
    whole.backward();
    std::vector<float> direction = flat(whole.gradients(0));
    const double size = norm(direction);
    ASSERT_GT(size, 1e-5);
    for (float& value : direction) value = static_cast<float>(value / size);
    const double h = 1e-2;
    const double slope =
        (whole.moved_loss(h, direction) - whole.moved_loss(-h, direction)) / (2 * h);
    EXPECT_NEAR(slope / whole.terms.denominators[0], size, 0.01 * size);
}

TEST_P(ObjectiveOfPairs, LeavesOtherAdaptersOfTheMicrobatchAsTheyAre) {
    PairStage whole("pairs", GetParam());
    PairStage usual("usual", GetParam());
    EXPECT_NEAR(whole.loss_sum(1), usual.loss_sum(1), 1e-9);
    for (PairStage* stage : {&whole, &usual}) stage->backward();
    EXPECT_EQ(flat(whole.gradients(1)), flat(usual.gradients(1)));
    EXPECT_GT(distance(flat(whole.gradients(0)), flat(usual.gradients(0))), 0.1);
}

TEST_P(ObjectiveOfPairs, LossesAddUpOverMicrobatches) {
    PairStage whole("pairs", GetParam());
    const double once = whole.loss_sum(0);
    whole.forward_in_slot(0);
    double twice = 0.0;
    whole.backend->download(&twice, whole.stage->sums().loss, sizeof(twice));
    EXPECT_DOUBLE_EQ(twice, 2.0 * once);
}

TEST_P(ObjectiveOfPairs, EvaluationGivesTheSumsPerSample) {
    PairStage whole("pairs", GetParam());
    whole.terms = {{}, true};
    whole.forward_in_slot(0);
    std::vector<double> sums(3);
    whole.backend->download(sums.data(), whole.stage->sums().sample_nll, 3 * sizeof(double));
    const std::vector<double> nll = sample_nll(whole);
    for (std::size_t i = 0; i < sums.size(); ++i) EXPECT_NEAR(sums[i], nll[i], 1e-4);
}

/// sum w nll of every adapter's sample, and sum w, of weights that
/// torch.nn.functional.cross_entropy with reduction "none" would be multiplied by.
struct WeightedStage : PairStage {
    WeightedStage(const std::string& first_adapter, std::int64_t vocabulary)
        : PairStage(first_adapter, vocabulary) {
        for (std::size_t row = 0; row < packed.targets.size(); ++row) {
            const bool weighs = row >= 24;  // the rows of adapter 1
            packed.weights.push_back(weighs ? 0.25F * static_cast<float>(row % 9) + 0.1F : 1.0F);
            if (weighs && packed.targets[row] >= 0) sum += double{packed.weights.back()};
        }
        terms.denominators[1] = sum;
    }

    /// Of adapter 1, in fp64.
    double expected() {
        forward_in_slot(0);
        const std::vector<float> logits = stage->logits(0);
        const auto vocab = static_cast<std::size_t>(plan.model.vocab_size);
        double losses = 0.0;
        for (std::size_t row = 24; row < packed.targets.size(); ++row) {
            if (packed.targets[row] < 0) continue;
            double exponentials = 0.0;
            for (std::size_t j = 0; j < vocab; ++j) {
                exponentials += std::exp(double{logits[row * vocab + j]});
            }
            const auto own = row * vocab + static_cast<std::size_t>(packed.targets[row]);
            losses += double{packed.weights[row]} * (std::log(exponentials) - double{logits[own]});
        }
        return losses / sum;
    }

    double sum = 0.0;
};

TEST_P(ObjectiveOfPairs, TokensCountByTheirWeights) {
    for (const char* neighbour : {"pairs", "usual"}) {
        WeightedStage whole(neighbour, GetParam());
        const double expected = whole.expected();
        EXPECT_NEAR(whole.loss_sum(1) / whole.sum, expected, 1e-5 * expected) << neighbour;
        whole.forward_in_slot(0);
        whole.backward();
        std::vector<float> direction = flat(whole.gradients(1));
        const double size = norm(direction);
        ASSERT_GT(size, 1e-3);
        const auto moved = [&](double h) {
            auto tensors = whole.parameters(1);
            const auto original = tensors;
            std::size_t i = 0;
            for (NamedTensor& tensor : tensors) {
                for (float& value : tensor.values) {
                    value += static_cast<float>(h * double{direction[i++]} / size);
                }
            }
            whole.upload(1, tensors);
            const double loss = whole.expected();
            whole.upload(1, original);
            return loss;
        };
        const double h = 1e-2;
        EXPECT_NEAR((moved(h) - moved(-h)) / (2 * h), size, 0.01 * size) << neighbour;
    }
}

TEST_P(ObjectiveOfPairs, WeightsOfOneChangeNothing) {
    PairStage bare("pairs", GetParam());
    PairStage with("pairs", GetParam());
    with.packed.weights.assign(with.packed.targets.size(), 1.0F);
    for (std::size_t a : {std::size_t{0}, std::size_t{1}}) {
        EXPECT_EQ(bare.loss_sum(a), with.loss_sum(a));
    }
    for (PairStage* stage : {&bare, &with}) stage->backward();
    EXPECT_EQ(flat(bare.gradients(1)), flat(with.gradients(1)));
}

INSTANTIATE_TEST_SUITE_P(Vocabularies, ObjectiveOfPairs, testing::Values(61, 1 << 19));

TEST(Objective, TheLargeVocabularyPartsASample) {
    const PairStage whole("pairs", 1 << 19);
    const std::int64_t rows = logits_chunk(only_replica(whole.plan)).rows;
    EXPECT_GT(rows, 2 * labels);
    EXPECT_LT(rows, 3 * labels);
}

TEST(Objective, CrossEntropyIsAMeanOverTargets) {
    const AdapterJob adapter;
    const Objective& objective = objective_of(adapter);
    EXPECT_FALSE(objective.needs_first_pass());
    const std::vector<SampleRef> samples{{0, 5, 4}, {1, 9, 6}};
    std::vector<float> scales(2);
    objective.scales({samples, {}}, 10, scales);
    EXPECT_EQ(scales, (std::vector<float>{0.1F, 0.1F}));
    objective.scales({samples, {}}, 0, scales);
    EXPECT_EQ(scales, (std::vector<float>{0.0F, 0.0F}));
    const std::vector<double> nll{1.5, 2.5};
    std::vector<double> losses(2);
    objective.losses({samples, nll}, losses);
    EXPECT_EQ(losses, nll);
}

}  // namespace
}  // namespace loratrain::test
