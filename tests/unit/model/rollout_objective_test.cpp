#include "model/objective/rollout_objective.h"

#include <algorithm>
#include <optional>

#include "plan/sample_counts.h"
#include "support/sanitized.h"
#include "unit/model/small_stage.h"

namespace loratrain::test {
namespace {

/// Samples of four targets, one and none. Ratios are below, within and above [0.8, 1.2], with
/// advantages of both signs.
struct Rollouts {
    std::vector<SampleRef> samples{{0, 9, 4}, {1, 9, 1}, {2, 9, 0}};
    std::vector<double> nll{2.0, 1.5, 3.0, 0.5, 2.5};
    std::vector<double> reference{2.25, 1.0, 3.0, 0.75, 2.0};
    std::vector<float> advantages{1.5F, -0.5F, 0.75F, -2.0F, 1.0F};
    std::vector<float> logprobs{-2.5F, -1.0F, -3.0625F, -0.75F, -2.25F};
    std::vector<double> entropies{0.5, 1.0, 1.5, 0.25, 2.0};
    LossJob loss;

    ObjectiveSamples view() const {
        ObjectiveSamples all{samples, {}};
        all.loss = loss;
        all.rows = {nll, {}, advantages, logprobs, entropies};
        if (loss.has_reference()) all.rows.reference = reference;
        return all;
    }
    double sum() const {
        std::vector<double> values(3, -1.0);
        RolloutObjective().losses(view(), values);
        EXPECT_EQ(values[2], 0.0);
        return values[0] + values[1];
    }
    RolloutObjective::TokenTerm term(std::size_t row) const {
        return RolloutObjective::token_term(loss, view().rows, row);
    }
};

LossJob rollout_loss(Loss loss, std::optional<double> beta = {}) {
    LossJob made{loss};
    made.beta = beta;
    return made;
}

TEST(RolloutObjective, TokensHaveTheLossesThatTinkerAndTrlDocument) {
    const double up = std::exp(0.5);     // ratio of the first row
    const double down = std::exp(-0.5);  // of the second
    Rollouts rollouts;
    rollouts.loss = rollout_loss(Loss::importance_sampling);
    EXPECT_NEAR(rollouts.term(0).value, -1.5 * up, 1e-12);
    EXPECT_NEAR(rollouts.term(1).value, 0.5 * down, 1e-12);
    EXPECT_FALSE(rollouts.term(0).clipped);
    for (const Loss clipping : {Loss::ppo, Loss::grpo}) {
        rollouts.loss = rollout_loss(clipping);
        EXPECT_NEAR(rollouts.term(0).value, -1.5 * 1.2, 1e-12);
        EXPECT_NEAR(rollouts.term(1).value, 0.5 * 0.8, 1e-12);
        EXPECT_TRUE(rollouts.term(0).clipped && rollouts.term(1).clipped);
        EXPECT_EQ(rollouts.term(0).slope, 0.0);
        EXPECT_FALSE(rollouts.term(2).clipped);
        rollouts.advantages[0] = -1.5F;  // a ratio above that is to fall is not clipped
        EXPECT_NEAR(rollouts.term(0).value, 1.5 * up, 1e-12);
        EXPECT_FALSE(rollouts.term(0).clipped);
        rollouts.advantages[0] = 1.5F;
    }
    rollouts.loss = rollout_loss(Loss::cispo);
    EXPECT_NEAR(rollouts.term(0).value, 1.2 * 1.5 * 2.0, 1e-12);
    EXPECT_NEAR(rollouts.term(0).slope, 1.2 * 1.5, 1e-12);
    EXPECT_TRUE(rollouts.term(0).clipped && rollouts.term(1).clipped);
    rollouts.loss = rollout_loss(Loss::dro, 0.3);
    EXPECT_NEAR(rollouts.term(0).value, -(-2.0 * 1.5 - 0.5 * 0.3 * 0.25), 1e-12);
    rollouts.loss = rollout_loss(Loss::grpo, 0.3);
    EXPECT_NEAR(rollouts.term(0).kl, std::exp(-0.25) + 0.25 - 1.0, 1e-12);
    EXPECT_NEAR(rollouts.term(0).value, -1.5 * 1.2 + 0.3 * rollouts.term(0).kl, 1e-12);
}

/// CISPO's gradient treats clip(r) as a constant: its loss is differentiated with r of the middle.
double moved_sum(const Rollouts& rollouts, std::size_t row, double h) {
    Rollouts moved = rollouts;
    moved.nll[row] += h;
    if (rollouts.loss.loss == Loss::cispo) {
        for (std::size_t i = 0; i < moved.nll.size(); ++i) {
            const double clip =
                std::clamp(rollouts.term(i).ratio, rollouts.loss.clip_low, rollouts.loss.clip_high);
            moved.advantages[i] = static_cast<float>(clip * double{moved.advantages[i]});
            moved.logprobs[i] = static_cast<float>(-moved.nll[i]);
        }
        moved.loss.clip_low = moved.loss.clip_high = 1.0;
    }
    return moved.sum();
}

TEST(RolloutObjective, RowScalesAreTheSlopesOfTheLoss) {
    for (const Loss kind :
         {Loss::importance_sampling, Loss::ppo, Loss::cispo, Loss::dro, Loss::grpo}) {
        for (const double beta : {0.0, 0.4}) {
            for (const auto aggregation :
                 {LossAggregation::token, LossAggregation::sequence, LossAggregation::constant}) {
                Rollouts rollouts;
                rollouts.loss = rollout_loss(kind, beta);
                rollouts.loss.aggregation = aggregation;
                std::vector<float> scales(5, 7.0F);
                RolloutObjective().row_scales(rollouts.view(), 4.0, scales);
                for (std::size_t row = 0; row < scales.size(); ++row) {
                    const double h = 1e-5;
                    const double slope =
                        (moved_sum(rollouts, row, h) - moved_sum(rollouts, row, -h)) / (2 * h);
                    EXPECT_NEAR(scales[row], slope / 4.0, 3e-6)
                        << static_cast<int>(kind) << " " << beta << " " << row;
                }
                RolloutObjective().row_scales(rollouts.view(), 0.0, scales);
                EXPECT_EQ(scales, std::vector<float>(5, 0.0F));
            }
        }
    }
}

TEST(RolloutObjective, AggregatesAsDapoGrpoAndDrGrpo) {
    Rollouts rollouts;
    rollouts.loss = rollout_loss(Loss::importance_sampling);
    std::vector<double> tokens;
    for (std::size_t row = 0; row < 5; ++row) tokens.push_back(rollouts.term(row).value);
    const double first = tokens[0] + tokens[1] + tokens[2] + tokens[3];
    BatchPlan batch;
    batch.samples = 3;
    batch.target_weight = 5;
    EXPECT_NEAR(rollouts.sum(), first + tokens[4], 1e-12);
    EXPECT_EQ(loss_denominator(rollouts.loss, batch), 5);
    rollouts.loss.aggregation = LossAggregation::sequence;
    EXPECT_NEAR(rollouts.sum(), first / 4 + tokens[4], 1e-12);
    EXPECT_EQ(loss_denominator(rollouts.loss, batch), 3);
    rollouts.loss.aggregation = LossAggregation::constant;
    rollouts.loss.max_completion_length = 16;
    EXPECT_NEAR(rollouts.sum(), first + tokens[4], 1e-12);
    EXPECT_EQ(loss_denominator(rollouts.loss, batch), 48);
    EXPECT_EQ(loss_denominator(rollouts.loss.evaluated(), batch), 5);
    rollouts.loss.loss = Loss::sft;  // whose denominator no key of rollouts changes
    EXPECT_EQ(loss_denominator(rollouts.loss, batch), 5);
}

TEST(RolloutObjective, ReportsRatiosClippedTokensAndKl) {
    Rollouts rollouts;
    rollouts.loss = rollout_loss(Loss::ppo, 0.5);
    RewardSums sums = RolloutObjective().rewards(rollouts.view());
    double kl = 0.0;
    double ratios = 0.0;
    for (std::size_t row = 0; row < 5; ++row) {
        kl += rollouts.term(row).kl;
        ratios += rollouts.term(row).ratio;
    }
    Rollouts other = rollouts;
    other.nll.assign(5, 1.0);
    other.logprobs.assign(5, -1.0F);
    sums.add(RolloutObjective().rewards(other.view()));
    const RewardMeans means = means_of(RewardSums::of(sums.values()));
    EXPECT_NEAR(means.ratio, (ratios + 5) / 10, 1e-12);
    EXPECT_NEAR(means.largest_ratio, std::exp(0.5), 1e-12);
    // Clipped are rows 0 and 1: the ratio of row 3 is above, but its advantage negative.
    EXPECT_NEAR(means.clipped, 0.2, 1e-12);
    EXPECT_GT(means.kl, kl / 10);
    EXPECT_NEAR(means.entropy, 1.05, 1e-12);
}

TEST(RolloutObjective, EvaluationsAreCrossEntropy) {
    Rollouts rollouts;
    rollouts.loss = rollout_loss(Loss::grpo, 0.1);
    ObjectiveSamples evaluated{rollouts.samples, {}};
    const std::vector<double> nll{7.0, 2.5, 0.0};
    evaluated.nll = nll;
    evaluated.loss = rollouts.loss;
    std::vector<double> losses(3);
    RolloutObjective().losses(evaluated, losses);
    EXPECT_EQ(losses, nll);
    EXPECT_EQ(RolloutObjective().rewards(evaluated).tokens, 0.0);
}

/// Adapter 0 with a loss of rollouts on two samples, adapter 1 with dpo or sft, adapter 2 with sft.
struct RolloutStage : WholeStage {
    RolloutStage(Loss first, Loss second, std::int64_t vocabulary)
        : WholeStage(with(first, second, vocabulary)) {
        microbatch.segments[0].samples = {{4, 12, 11}, {5, 12, 11}};
        microbatch.segments[1].samples = {{6, 12, 11}, {7, 12, 11}};
        microbatch.segments[2].samples = {{8, 12, 11}};
        terms.denominators = {22, second == Loss::sft ? 22.0 : 1.0, 11};
        pack();
        for (std::size_t row = 0; row < packed.targets.size(); ++row) {
            const float wave = std::sin(static_cast<float>(row));
            packed.advantages.push_back(row < 24 ? wave : 0.0F);
            packed.logprobs.push_back(row < 24 ? -4.1F + 0.3F * wave * wave : 0.0F);
        }
        ReferenceValues reference;
        const std::vector<double> targets(11, 4.0);
        for (int sample = 0; sample < 10; ++sample) reference.add(targets);
        stage->references().set({DatasetId{0}, ""}, reference);
        ReferenceValues of_pairs;
        const double z = 44.0;
        for (int sample = 0; sample < 10; ++sample) of_pairs.add({&z, 1});
        stage->references().set({DatasetId{1}, ""}, of_pairs);
    }

    static SmallCase with(Loss first, Loss second, std::int64_t vocabulary) {
        ModelSpec model = small_model();
        model.vocab_size = vocabulary;
        SmallCase made{model,
                       {small_adapter("a", 4), small_adapter("b", 3), small_adapter("c", 2)}};
        made.job.adapters[0].loss.loss = first;
        if (first != Loss::sft) made.job.adapters[0].loss.beta = 0.3;
        made.job.adapters[1].loss.loss = second;
        made.job.adapters[1].dataset = DatasetId{1};
        return made;
    }

    double loss(std::size_t adapter) {
        return forward(adapter) * 11.0 / terms.denominators[adapter];
    }
};

class RolloutStages : public testing::TestWithParam<std::int64_t> {};

/// Logits of a microbatch are one chunk, and two that part a sample.
TEST_P(RolloutStages, GradientIsTheSlopeOfItsLoss) {
    if (GetParam() > 1000) {
        LORATRAIN_SKIP_UNDER_SANITIZERS();
    }
    for (const Loss kind : {Loss::importance_sampling, Loss::ppo, Loss::dro, Loss::grpo}) {
        RolloutStage whole(kind, Loss::dpo, GetParam());
        if (kind == Loss::ppo || kind == Loss::grpo) {  // no token near a bound
            whole.job.adapters[0].loss.clip_low = 0.0;
            whole.job.adapters[0].loss.clip_high = 100.0;
        }
        whole.loss(0);
        whole.backward();
        const std::vector<float> direction = flat(whole.gradients(0));
        const double size = norm(direction);
        ASSERT_GT(size, 1e-4);
        const auto moved = [&](double h) {
            const auto original = whole.parameters(0);
            auto tensors = original;
            std::size_t i = 0;
            for (NamedTensor& tensor : tensors) {
                for (float& value : tensor.values) {
                    value += static_cast<float>(h * double{direction[i++]} / size);
                }
            }
            whole.upload(0, tensors);
            const double loss = whole.loss(0);
            whole.upload(0, original);
            return loss;
        };
        const double h = 1e-2;
        EXPECT_NEAR((moved(h) - moved(-h)) / (2 * h), size, 0.01 * size) << static_cast<int>(kind);
    }
}

TEST_P(RolloutStages, LeaveOtherAdaptersOfTheMicrobatchAsTheyAre) {
    if (GetParam() > 1000) {
        LORATRAIN_SKIP_UNDER_SANITIZERS();
    }
    for (const Loss second : {Loss::dpo, Loss::sft}) {
        RolloutStage whole(Loss::grpo, second, GetParam());
        RolloutStage usual(Loss::sft, second, GetParam());
        for (const std::size_t a : {1U, 2U}) {
            EXPECT_NEAR(whole.loss(a), usual.loss(a), 1e-12);
        }
        for (RolloutStage* stage : {&whole, &usual}) {
            stage->loss(0);
            stage->backward();
        }
        EXPECT_EQ(flat(whole.gradients(1)), flat(usual.gradients(1)));
        EXPECT_EQ(flat(whole.gradients(2)), flat(usual.gradients(2)));
        EXPECT_GT(distance(flat(whole.gradients(0)), flat(usual.gradients(0))), 0.1);
    }
}

TEST_P(RolloutStages, ReferencesAreOfTargets) {
    RolloutStage whole(Loss::grpo, Loss::dpo, GetParam());
    whole.terms = {{}, true};
    whole.forward_in_slot(0);
    std::vector<double> by_sample(5);
    whole.backend->download(by_sample.data(), whole.stage->sums().sample_nll, 5 * sizeof(double));
    whole.terms.by_target = true;
    whole.forward_in_slot(0);
    std::vector<double> by_target(55);
    whole.backend->download(by_target.data(), whole.stage->sums().sample_nll, 55 * sizeof(double));
    for (std::size_t sample = 0; sample < 5; ++sample) {
        const auto first = by_target.begin() + static_cast<std::ptrdiff_t>(11 * sample);
        EXPECT_NEAR(std::accumulate(first, first + 11, 0.0), by_sample[sample], 1e-9);
    }
}

INSTANTIATE_TEST_SUITE_P(Vocabularies, RolloutStages, testing::Values(61, 1 << 19));

}  // namespace
}  // namespace loratrain::test
