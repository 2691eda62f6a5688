#include "model/objective/objectives.h"

#include "unit/model/small_stage.h"

namespace loratrain::test {
namespace {

constexpr std::size_t columns = 5;

/// Three pairs of hidden states.
struct Paraphrases {
    std::vector<SampleRef> samples{{0, 9, 4}, {1, 9, 4}, {2, 9, 1},
                                   {3, 9, 1}, {4, 9, 3}, {5, 9, 3}};
    std::vector<double> nll{3.0, 9.5, 2.25, 4.0, 1.0, 2.0};
    std::vector<float> hidden;
    LossJob loss{Loss::cit};

    Paraphrases() {
        loss.temperature = 0.4;
        for (std::size_t i = 0; i < samples.size() * columns; ++i) {
            hidden.push_back(4.0F * uniform_float(7, i) - 2.0F);
        }
    }

    HiddenLoss get() const {
        ObjectiveSamples of{samples, nll};
        of.loss = loss;
        of.hidden = hidden;
        return CitObjective().hidden_loss(of, denominator);
    }

    double similarity(std::size_t i, std::size_t j) const {
        double product = 0.0;
        double first = 0.0;
        double second = 0.0;
        for (std::size_t c = 0; c < columns; ++c) {
            const double u = hidden[2 * i * columns + c];
            const double v = hidden[(2 * j + 1) * columns + c];
            product += u * v;
            first += u * u;
            second += v * v;
        }
        return product / std::sqrt(first * second) / loss.temperature;
    }

    /// C as it is written, in plain loops.
    double contrastive() const {
        const std::size_t pairs = samples.size() / 2;
        double sum = 0.0;
        for (std::size_t i = 0; i < pairs; ++i) {
            double row = 0.0;
            double column = 0.0;
            for (std::size_t j = 0; j < pairs; ++j) {
                row += std::exp(similarity(i, j) - similarity(i, i));
                column += std::exp(similarity(j, i) - similarity(i, i));
            }
            sum += std::log(row) + std::log(column);
        }
        return sum / (2.0 * static_cast<double>(pairs));
    }

    static constexpr double denominator = 16.0;
    static constexpr double generation = 21.75 / denominator;
};

TEST(CitObjective, IsTheWrittenLoss) {
    Paraphrases pairs;
    const double c = pairs.contrastive();
    ASSERT_GT(c, 0.1);
    EXPECT_NEAR(pairs.get().compared, c, 1e-12);
    pairs.loss.lambda = 0.5 * Paraphrases::generation / c;
    EXPECT_NEAR(pairs.get().value, pairs.loss.lambda * c * Paraphrases::denominator, 1e-12);
    pairs.loss.lambda = 2.0 * Paraphrases::generation / c;  // beyond: as much as cross-entropy is
    EXPECT_NEAR(pairs.get().value, 21.75, 1e-12);
    pairs.loss.lambda = 0.0;
    EXPECT_EQ(pairs.get().value, 0.0);
}

TEST(CitObjective, CrossEntropyIsTheRest) {
    const Paraphrases pairs;
    AdapterJob adapter;
    adapter.loss = pairs.loss;
    const Objective& objective = objective_of(adapter);
    EXPECT_TRUE(objective.compares_hidden());
    EXPECT_FALSE(objective.needs_first_pass());
    std::vector<double> losses(6);
    objective.losses({pairs.samples, pairs.nll}, losses);
    EXPECT_EQ(losses, pairs.nll);
    std::vector<float> scales(6);
    objective.scales({pairs.samples, {}}, 16.0, scales);
    EXPECT_EQ(scales, std::vector<float>(6, 0.0625F));
}

TEST(CitObjective, GradientIsTheSlopeOfTheContrastiveLoss) {
    for (const double lambda : {0.3, 1e9}) {
        Paraphrases pairs;
        pairs.loss.lambda = lambda;
        const HiddenLoss loss = pairs.get();
        const double weight = loss.value / Paraphrases::denominator / loss.compared;
        ASSERT_EQ(loss.gradient.size(), pairs.hidden.size());
        for (std::size_t i = 0; i < pairs.hidden.size(); ++i) {
            const float at = pairs.hidden[i];
            constexpr float h = 1.0F / 1024;
            pairs.hidden[i] = at + h;
            const double above = pairs.contrastive();
            pairs.hidden[i] = at - h;
            const double below = pairs.contrastive();
            pairs.hidden[i] = at;
            EXPECT_NEAR(loss.gradient[i], weight * (above - below) / (2.0 * double{h}),
                        1e-5 * weight)
                << i;
        }
    }
}

TEST(CitObjective, OnePairHasNothingToCompareWith) {
    Paraphrases pairs;
    pairs.samples.resize(2);
    pairs.nll.resize(2);
    pairs.hidden.resize(2 * columns);
    const HiddenLoss loss = pairs.get();
    EXPECT_EQ(loss.value, 0.0);
    EXPECT_EQ(loss.compared, 0.0);
    EXPECT_EQ(loss.gradient, std::vector<float>(2 * columns, 0.0F));
}

TEST(CitObjective, SimilaritiesOfAnySizeAreFinite) {
    Paraphrases pairs;
    pairs.loss.temperature = 1e-4;
    pairs.loss.lambda = 1e9;
    const HiddenLoss loss = pairs.get();
    EXPECT_TRUE(std::isfinite(loss.compared));
    for (const float value : loss.gradient) EXPECT_TRUE(std::isfinite(value));
}

/// One microbatch: two pairs of adapter 0, of which the last sample ends before its rows do, as
/// padded ones; a sample of adapter 1.
struct ComparingStage : WholeStage {
    explicit ComparingStage(const LossJob& loss, std::int64_t vocabulary = 61)
        : WholeStage(of_vocabulary(vocabulary)) {
        job.adapters[0].loss = loss;
        microbatch.segments[0].samples = {{2, 12, 11}, {3, 12, 11}, {4, 12, 11}, {5, 12, 7}};
        terms.denominators = {11, 11};
        pack();
        for (const std::size_t row : {43U, 44U, 45U, 46U}) packed.targets[row] = -100;
    }

    static SmallCase of_vocabulary(std::int64_t vocabulary) {
        ModelSpec model = small_model();
        model.vocab_size = vocabulary;
        return {model, {small_adapter("compares", 4), small_adapter("plain", 3)}};
    }

    std::vector<float> first_gradient() {
        forward(0);
        backward();
        return flat(gradients(0));
    }
    double compared() {
        stage->losses().take_sums(AdapterId{0}, 3);
        forward(0);
        return stage->losses().take_sums(AdapterId{0}, 3).rewards.compared;
    }
};

LossJob cit_of(double lambda) {
    LossJob loss{Loss::cit};
    loss.temperature = 0.5;
    loss.lambda = lambda;
    return loss;
}

TEST(ComparingStage, GradientsAreSlopes) {
    ComparingStage whole(cit_of(0.75));
    const double c = whole.compared();
    EXPECT_GT(c, 0.1);
    EXPECT_NEAR(whole.forward(0), ComparingStage(cit_of(0.0)).forward(0) + 0.75 * c, 1e-9);
    whole.forward(0);
    whole.backward();
    expect_slopes(whole, 0);
}

TEST(ComparingStage, TheBoundedWeightHasNoGradient) {
    const std::vector<float> of_generation = ComparingStage(cit_of(0.0)).first_gradient();
    const std::vector<float> of_both = ComparingStage(cit_of(0.75)).first_gradient();
    ComparingStage bounded(cit_of(1e9));
    const double weight = bounded.forward(0) / 2.0 / bounded.compared();
    ASSERT_GT(weight, 0.75);
    std::vector<float> expected = of_generation;
    for (std::size_t i = 0; i < expected.size(); ++i) {
        expected[i] += static_cast<float>(weight / 0.75) * (of_both[i] - of_generation[i]);
    }
    ComparingStage fresh(cit_of(1e9));
    EXPECT_LT(distance(fresh.first_gradient(), expected), 1e-4);
}

/// Of vocabularies whose logits of a microbatch are one chunk, and several.
TEST(ComparingStage, LeavesOtherAdaptersOfTheMicrobatchAsTheyAre) {
    for (const std::int64_t vocabulary : {61, 1 << 19}) {
        ComparingStage whole(cit_of(0.75), vocabulary);
        ComparingStage usual({}, vocabulary);
        EXPECT_EQ(whole.forward(1), usual.forward(1));
        for (ComparingStage* stage : {&whole, &usual}) stage->backward();
        EXPECT_EQ(flat(whole.gradients(1)), flat(usual.gradients(1)));
        EXPECT_GT(distance(flat(whole.gradients(0)), flat(usual.gradients(0))), 0.01);
    }
}

TEST(ComparingStage, PaddingBehindTheLastLabelIsNotCompared) {
    ComparingStage whole(cit_of(0.75));
    const double before = whole.compared();
    whole.packed.token_ids[47] = (whole.packed.token_ids[47] + 1) % 61;
    EXPECT_EQ(whole.compared(), before);
    whole.packed.token_ids[43] = (whole.packed.token_ids[43] + 1) % 61;
    EXPECT_NE(whole.compared(), before);
}

TEST(ComparingStage, EvaluationsAreOfCrossEntropy) {
    ComparingStage whole(cit_of(0.75));
    whole.terms = {{}, true};
    whole.forward_in_slot(0);
    std::vector<double> sums(5);
    whole.backend->download(sums.data(), whole.stage->sums().sample_nll, 5 * sizeof(double));
    ComparingStage usual(cit_of(0.0));
    EXPECT_NEAR(sums[0] + sums[1] + sums[2] + sums[3], usual.forward(0) * 11.0, 1e-9);
    std::vector<double> losses(4);
    const RewardSums rewards = whole.stage->losses().evaluated(whole.microbatch.segments[0], 0.0,
                                                               std::span(sums).first(4), losses);
    EXPECT_EQ(losses, (std::vector<double>{sums[0], sums[1], sums[2], sums[3]}));
    EXPECT_EQ(rewards.compared, 0.0);
}

}  // namespace
}  // namespace loratrain::test
