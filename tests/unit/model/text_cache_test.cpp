#include "model/text_cache.h"

#include "unit/model/small_stage.h"

namespace loratrain::test {
namespace {

constexpr std::int32_t prompts[] = {1, 3, 63, 64, 65};
constexpr std::int32_t steps = 7;
constexpr std::size_t of_first_adapter = 3;  ///< prompts; the others are of the second

std::int32_t token(std::size_t sample, std::int32_t position) {
    return static_cast<std::int32_t>(
        uniform_int(7 + sample, static_cast<std::uint64_t>(position), 61));
}

/// A stage with the texts of two adapters of unlike ranks side by side, token by token or whole.
class Texts {
  public:
    explicit Texts(const ModelSpec& model) : whole_(make_case(model)) {}

    /// Logits of tokens [first(sample), end(sample)) of each sample, [samples][tokens V].
    template <class First, class End, class Forward>
    std::vector<std::vector<float>> logits(const First& first, const End& end,
                                           const Forward& forward) {
        pack(first, end);
        forward();
        const std::vector<float> all = whole_.stage->logits(0);
        std::vector<std::vector<float>> of_samples;
        auto at = all.begin();
        for (std::size_t i = 0; i < std::size(prompts); ++i) {
            const auto next = at + (end(i) - first(i)) * whole_.plan.model.vocab_size;
            of_samples.emplace_back(at, next);
            at = next;
        }
        return of_samples;
    }

    std::vector<std::vector<float>> of_whole_texts() {
        return logits([](std::size_t) { return 0; },
                      [](std::size_t i) { return prompts[i] + steps; },
                      [&] { whole_.forward_in_slot(0); });
    }
    void begin() {
        std::vector<std::int64_t> rooms;
        for (const std::int32_t prompt : prompts) rooms.push_back(prompt + steps);
        whole_.stage->begin_texts(rooms);
    }
    std::vector<std::vector<float>> of_prompts() {
        return logits([](std::size_t) { return 0; }, [](std::size_t i) { return prompts[i]; },
                      [&] { forward_texts(TextCache::Rows::prompts); });
    }
    std::vector<std::vector<float>> of_step(std::int32_t step) {
        return logits([&](std::size_t i) { return prompts[i] + step; },
                      [&](std::size_t i) { return prompts[i] + step + 1; },
                      [&] { forward_texts(TextCache::Rows::next); });
    }
    std::int64_t vocabulary() const { return whole_.plan.model.vocab_size; }

  private:
    static SmallCase make_case(const ModelSpec& model) {
        SmallCase test_case(model, {small_adapter("a", 4), small_adapter("b", 3)});
        test_case.job.parallel.microbatch_tokens = 256;
        test_case.job.eval.generate.samples = std::ssize(prompts);
        test_case.job.eval.generate.max_new_tokens = steps;
        test_case.infos.front().train.assign(10, {120, 119});
        test_case.make_plan_again();
        return test_case;
    }

    template <class First, class End>
    void pack(const First& first, const End& end) {
        Microbatch& microbatch = whole_.microbatch;
        microbatch.segments.clear();
        microbatch.evaluation = whole_.terms.evaluation = true;
        whole_.terms.denominators = {100, 100};
        for (const int adapter : {0, 1}) {
            microbatch.segments.emplace_back().adapter = static_cast<AdapterId>(adapter);
        }
        for (std::size_t i = 0; i < std::size(prompts); ++i) {
            const std::size_t adapter = i < of_first_adapter ? 0 : 1;
            microbatch.segments[adapter].samples.push_back(
                {static_cast<std::int32_t>(i), end(i) - first(i), 1});
        }
        whole_.pack();
        PackedBatch& packed = whole_.packed;
        std::size_t row = 0;
        for (std::size_t i = 0; i < std::size(prompts); ++i) {
            for (std::int32_t t = first(i); t < end(i); ++t, ++row) {
                packed.token_ids[row] = token(i, t);
                packed.positions[row] = t;
                packed.targets[row] = t + 1 == end(i) ? token(i, t) : -100;
            }
        }
    }
    void forward_texts(TextCache::Rows what) {
        const PackedBatch& packed = whole_.packed;
        whole_.stage->forward_texts(
            whole_.microbatch,
            {packed.token_ids, packed.targets, packed.positions, packed.sample_ids, packed.offsets},
            what, 0);
    }

    WholeStage whole_;
};

std::vector<float> logits_of_rows(const std::vector<float>& logits, std::int64_t columns,
                                  std::int64_t first, std::int64_t count) {
    const auto begin = logits.begin() + first * columns;
    return {begin, begin + count * columns};
}

void expect_steps_as_whole(const ModelSpec& model) {
    Texts texts(model);
    const auto whole = texts.of_whole_texts();
    const std::int64_t columns = texts.vocabulary();
    for (const int again : {0, 1}) {  // the second finds what the first left in the cache
        texts.begin();
        const auto beginnings = texts.of_prompts();
        for (std::size_t i = 0; i < std::size(prompts); ++i) {
            EXPECT_LE(distance(beginnings[i], logits_of_rows(whole[i], columns, 0, prompts[i])),
                      1e-5)
                << "prompt of " << prompts[i] << ", " << again;
        }
        for (std::int32_t step = 0; step < steps; ++step) {
            const auto next = texts.of_step(step);
            for (std::size_t i = 0; i < std::size(prompts); ++i) {
                EXPECT_LE(
                    distance(next[i], logits_of_rows(whole[i], columns, prompts[i] + step, 1)),
                    1e-5)
                    << "prompt of " << prompts[i] << ", step " << step;
            }
        }
    }
}

TEST(TextCache, StepsOfAttentionAreAsWholeTexts) {
    expect_steps_as_whole(small_model());
}

TEST(TextCache, StepsOfDeltaNetsAreAsWholeTexts) {
    for (const DeltaLinears linears : {DeltaLinears::by_kind, DeltaLinears::by_key_head}) {
        expect_steps_as_whole(with_delta_nets(small_model(), linears));
    }
}

}  // namespace
}  // namespace loratrain::test
