#include "unit/plan/pack_fixtures.h"
#include "plan/cost/built_in_costs.h"

#include <algorithm>

#include "base/rng.h"
#include "base/text.h"

namespace loratrain::plan_test {

namespace {

class Dice {
  public:
    explicit Dice(std::uint64_t seed) : key_(mix_key(seed, 99)) {}
    std::int64_t roll(std::int64_t low, std::int64_t high) {
        const auto width = static_cast<std::uint64_t>(high - low + 1);
        return low + static_cast<std::int64_t>(uniform_int(key_, next_++, width));
    }
    template <class T, std::size_t n>
    T pick(const T (&choices)[n]) {
        return choices[roll(0, static_cast<std::int64_t>(n) - 1)];
    }

  private:
    std::uint64_t key_;
    std::uint64_t next_ = 0;
};

ModelSpec costed_model() {
    ModelSpec model;
    model.family = "llama";
    model.vocab_size = 2048;
    model.hidden_size = 256;
    model.dense().size = 512;
    model.layers = 32;
    model.attention().heads = model.attention().kv_heads = 4;
    model.attention().head_dim = 64;
    return model;
}

PendingBatch random_batch(Dice& dice, std::int32_t adapter, std::int32_t step,
                          std::int64_t capacity, std::int64_t longest) {
    PendingBatch batch;
    batch.adapter = AdapterId{adapter};
    batch.step = step;
    const std::int64_t samples = dice.roll(1, dice.pick({2, 8, 64}));
    for (std::int64_t i = 0; i < samples; ++i) {
        const bool extreme = dice.roll(0, 30) == 0;
        const std::int64_t tokens = extreme ? dice.pick({std::int64_t{1}, capacity})
                                            : dice.roll(1, std::min(longest, capacity));
        const auto index = static_cast<std::int32_t>(step * 64 + (i * 37) % 64);
        batch.samples.push_back({index, static_cast<std::int32_t>(tokens),
                                 static_cast<std::int32_t>(dice.roll(0, tokens - 1))});
    }
    return batch;
}

}  // namespace

PackRules small_rules(std::int32_t stages, std::int64_t capacity, std::int32_t layers) {
    PackRules rules;
    rules.capacity = capacity;
    rules.max_in_flight = stages;
    rules.solver_seconds = 100.0;
    rules.costs = built_in_costs(costed_model(), DType::bf16, "h200");
    rules.costs.host = {};  // what holds up models as small as this is not meant
    for (std::int32_t s = 0; s < stages; ++s) {
        rules.stages.push_back({s, s * layers, layers, s == 0, s + 1 == stages});
    }
    return rules;
}

PackCase random_pack_case(std::uint64_t seed, std::int64_t samples) {
    Dice dice(seed);
    const std::int64_t capacity = dice.pick({1, 7, 100, 1000, 6144});
    PackCase test;
    test.rules = small_rules(static_cast<std::int32_t>(dice.roll(1, 16)), capacity);
    test.rules.recompute = dice.pick({Recompute::none, Recompute::layer});
    test.rules.packing = dice.pick({Packing::milp, Packing::greedy, Packing::bucketed});
    const auto adapters = static_cast<std::int32_t>(dice.roll(1, dice.pick({1, 4, 12, 64})));
    std::vector<std::int32_t> step(static_cast<std::size_t>(adapters));
    for (std::int32_t& s : step) s = static_cast<std::int32_t>(dice.roll(0, 5));
    std::vector<std::int64_t> longest(step.size());
    for (std::int64_t& l : longest) l = dice.roll(1, capacity);
    const std::int64_t rounds = dice.roll(1, 12);
    std::int64_t made = 0;
    for (std::int64_t r = 0; r < rounds && made < samples; ++r) {
        Round& round = test.rounds.emplace_back();
        for (std::int32_t a = 0; a < adapters; ++a) {
            const auto i = static_cast<std::size_t>(a);
            if (dice.roll(0, 20) == 0) continue;
            round.push_back(random_batch(dice, a, step[i]++, capacity, longest[i]));
            made += std::ssize(round.back().samples);
        }
    }
    return test;
}

PackCase in_pairs(PackCase test) {
    test.rules.capacity *= 2;
    for (Round& round : test.rounds) {
        for (PendingBatch& batch : round) {
            batch.group_samples = 2;
            if (batch.samples.size() % 2 == 0) continue;
            batch.samples.push_back(batch.samples.front());
            batch.samples.back().index += 1000;
        }
    }
    return test;
}

std::vector<std::string> packing_text(std::span<const Microbatch> microbatches) {
    std::vector<std::string> lines;
    for (const Microbatch& microbatch : microbatches) {
        std::string& line = lines.emplace_back();
        for (const Segment& segment : microbatch.segments) {
            line += cat(number(segment.adapter), "@", segment.step);
            for (const SampleRef& s : segment.samples) line += cat(" ", s.index, "*", s.tokens);
            line += "|";
        }
    }
    return lines;
}

}  // namespace loratrain::plan_test
