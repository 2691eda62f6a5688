#include "plan/cost/built_in_costs.h"
#include "plan/pack/pack_balanced.h"

#include <gtest/gtest.h>

#include "config/model_presets.h"
#include "plan/cost/cost_model.h"
#include "support/sanitized.h"
#include "support/summary_lengths.h"
#include "unit/plan/pack_fixtures.h"

namespace loratrain::plan_test {

namespace {

/// pack_microbatches proves what it returns (check_packing.h).
TEST(ImprovePacking, KeepsToTheRulesAndRepeats) {
    for (int seed = 0; seed < random_cases(8); ++seed) {
        PackCase test = random_pack_case(static_cast<std::uint64_t>(seed), 60);
        test.rules.packing = Packing::greedy;
        test.rules.changes_per_item = 20;
        const std::vector<Microbatch> first = pack_microbatches(test.rules, test.rounds);
        test.rules.threads = 2;
        EXPECT_EQ(packing_text(pack_microbatches(test.rules, test.rounds)), packing_text(first))
            << seed;
    }
}

TEST(ImprovePacking, IsNeverLonger) {
    for (int seed = 0; seed < random_cases(8); ++seed) {
        PackCase test = random_pack_case(static_cast<std::uint64_t>(seed), 60);
        test.rules.packing = Packing::greedy;
        test.rules.changes_per_item = 10;
        const BlockItems block = block_items(test.rules, test.rounds);
        if (block.items.empty()) continue;
        const Bins bins = pack_variant(test.rules, block, {Filling::in_turn, 1, 0});
        const ImprovedPacking improved = improve_packing(test.rules, block, bins);
        EXPECT_LE(improved.nanoseconds, steady_time(test.rules, block, bins));
        EXPECT_EQ(improved.nanoseconds, steady_time(test.rules, block, improved.bins));
    }
}

/// llama-3.1-8b, four adapters of mixed lengths, batches of 8, on four H200s.
TEST(ImprovePacking, FindsWhatTheVariantsDoNot) {
    std::vector<Round> rounds = summary_rounds(nullptr, 8);
    for (Round& round : rounds) {
        for (PendingBatch& batch : round) batch.samples.resize(8);
    }
    const ModelSpec model = *model_preset("llama-3.1-8b");
    PackRules rules;
    rules.packing = Packing::greedy;
    rules.capacity = 7168;
    rules.max_in_flight = 6;
    rules.costs = built_in_costs(model, DType::bf16, "h200");
    rules.stages = best_split(rules, static_cast<std::int32_t>(model.layers), 4, load_of(rounds));
    const BlockItems block = block_items(rules, rounds);
    const std::int64_t before = steady_time(rules, block, pack_balanced_block(rules, block).bins);
    rules.changes_per_item = 40;
    const BalancedPacking improved = pack_balanced_block(rules, block);
    EXPECT_EQ(improved.variant.filling, Filling::improved);
    EXPECT_LT(static_cast<double>(steady_time(rules, block, improved.bins)),
              0.99 * static_cast<double>(before));
}

TEST(ImprovePacking, NothingCanBeChangedInOneMicrobatchOfOneSample) {
    const std::vector<Round> rounds{{PendingBatch{AdapterId{0}, 0, {{0, 6, 6}}, 1}}};
    PackRules rules = small_rules(2, 10);
    rules.changes_per_item = 50;
    const BlockItems block = block_items(rules, rounds);
    EXPECT_EQ(improve_packing(rules, block, {{0}}).bins, (Bins{{0}}));
}

}  // namespace

}  // namespace loratrain::plan_test
