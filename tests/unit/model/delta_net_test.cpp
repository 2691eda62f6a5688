#include <optional>

#include "unit/model/small_stage.h"

namespace loratrain::test {
namespace {

constexpr DeltaLinears both_ways[] = {DeltaLinears::by_kind, DeltaLinears::by_key_head};

/// A stage, and microbatches of some of the samples of two adapters.
class Samples {
  public:
    Samples(const ModelSpec& model, const std::vector<std::int32_t>& lengths)
        : lengths_(lengths), case_(model, {small_adapter("a", 4), small_adapter("b", 3)}) {
        case_.job.parallel.microbatch_tokens = 2048;
        case_.infos.front().train.assign(10, {1000, 999});
        case_.make_plan_again();
        whole_.emplace(case_);
    }

    /// Logits of the samples' rows; gradients are added up.
    std::vector<std::vector<float>> train(const std::vector<std::size_t>& samples) {
        Microbatch& microbatch = whole_->microbatch;
        microbatch.segments.clear();
        whole_->terms.denominators.clear();
        for (const std::size_t sample : samples) {
            const auto adapter = static_cast<AdapterId>(sample < lengths_.size() / 2 ? 0 : 1);
            if (microbatch.segments.empty() || microbatch.segments.back().adapter != adapter) {
                microbatch.segments.emplace_back().adapter = adapter;
                whole_->terms.denominators.push_back(100);
            }
            microbatch.segments.back().samples.push_back(
                {static_cast<std::int32_t>(sample), lengths_[sample]});
        }
        whole_->pack();
        PackedBatch& packed = whole_->packed;
        std::size_t row = 0;
        for (const std::size_t sample : samples) {
            for (std::int32_t t = 0; t < lengths_[sample]; ++t, ++row) {
                packed.token_ids[row] = token(sample, t);
                if (packed.targets[row] >= 0) packed.targets[row] = token(sample, t + 1);
            }
        }
        whole_->terms.evaluation = true;
        whole_->forward_in_slot(0);
        const std::vector<float> logits = whole_->stage->logits(0);
        whole_->terms.evaluation = false;
        whole_->forward_in_slot(0);
        whole_->backward();
        std::vector<std::vector<float>> of_samples;
        auto begin = logits.begin();
        for (const std::size_t sample : samples) {
            const auto end = begin + lengths_[sample] * case_.plan.model.vocab_size;
            of_samples.emplace_back(begin, end);
            begin = end;
        }
        return of_samples;
    }
    std::vector<float> gradients(std::size_t adapter) const {
        return flat(whole_->gradients(adapter));
    }

  private:
    static std::int32_t token(std::size_t sample, std::int32_t position) {
        return static_cast<std::int32_t>(
            uniform_int(7 + sample, static_cast<std::uint64_t>(position), 61));
    }

    std::vector<std::int32_t> lengths_;
    SmallCase case_;
    std::optional<WholeStage> whole_;
};

TEST(DeltaNet, PackedSamplesAreAsAlone) {
    const std::vector<std::int32_t> lengths{3, 64, 1, 5, 65, 4, 63, 1000};
    for (const DeltaLinears linears : both_ways) {
        const ModelSpec model = with_delta_nets(small_model(), linears);
        Samples packed(model, lengths);
        Samples alone(model, lengths);
        const auto together = packed.train({0, 1, 2, 3, 4, 5, 6, 7});
        for (std::size_t sample = 0; sample < lengths.size(); ++sample) {
            EXPECT_LE(distance(together[sample], alone.train({sample}).front()), 2e-6) << sample;
        }
        for (const std::size_t adapter : {0U, 1U}) {
            EXPECT_LE(distance(packed.gradients(adapter), alone.gradients(adapter)), 2e-6);
        }
    }
}

}  // namespace
}  // namespace loratrain::test
