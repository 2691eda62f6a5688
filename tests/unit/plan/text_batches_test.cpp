#include "plan/deploy/text_batches.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "plan/memory/memory_model.h"
#include "unit/plan/plan_fixtures.h"

namespace loratrain::plan_test {
namespace {

/// A planned job whose adapters then get rewards, for 600 texts together.
class TextBatches : public ::testing::Test {
  protected:
    TextBatches() : plan_(test_.plan()) {
        for (AdapterJob& adapter : test_.job.adapters) {
            adapter.rewards.program = "reward";
            adapter.rewards.max_new_tokens = 20;
            adapter.global_batch_size = 300;
        }
    }
    ReplicaView view(std::int64_t texts = few_texts) {
        plan_.replicas.front().texts_at_once = texts;
        return view_of(plan_, plan_.replicas.front());
    }
    std::uint64_t memory(std::int64_t texts) {
        return stage_memory(test_.job, view(texts), 0).total();
    }
    /// Of a rank that has just enough for so many texts.
    std::uint64_t needed(std::int64_t texts) {
        const ReplicaView of = view(texts);
        return std::max(memory(texts),
                        8 * text_cache_bytes(test_.job, of, of.replica.stages.front()));
    }
    std::int64_t chosen() { return texts_at_once(test_.job, view()); }

    Case test_ = uniform_case(2, 1, 8, 16, 4);
    Plan plan_;
};

TEST_F(TextBatches, AreAsLargeAsMemoryAllows) {
    plan_.bytes_per_rank = needed(256);
    EXPECT_EQ(chosen(), 256);
    plan_.bytes_per_rank = needed(256) - 1;
    EXPECT_EQ(chosen(), 192);
    plan_.bytes_per_rank = needed(128);
    EXPECT_EQ(chosen(), 128);
    plan_.bytes_per_rank = memory(few_texts);
    EXPECT_EQ(chosen(), few_texts) << "what was planned without them fits as before";
    plan_.bytes_per_rank = 0;
    EXPECT_EQ(chosen(), few_texts) << "memory is not known";
}

TEST_F(TextBatches, TakeNoMemoryThatAdaptersWaitFor) {
    plan_.bytes_per_rank = needed(256);
    plan_.first_admitted.resize(1);
    EXPECT_EQ(chosen(), few_texts);
}

TEST_F(TextBatches, AreSmallWithoutRewards) {
    plan_.bytes_per_rank = needed(256);
    for (AdapterJob& adapter : test_.job.adapters) adapter.rewards = {};
    test_.job.eval.generate.samples = 1000;
    test_.job.eval.generate.max_new_tokens = 20;
    EXPECT_EQ(chosen(), few_texts);
}

TEST_F(TextBatches, RoomGrowsWithMicrobatchesAndTexts) {
    const std::int64_t microbatch = plan_.replicas.front().microbatch_tokens;
    const TextRoom few = text_room(test_.job, view());
    EXPECT_EQ(few.texts, few_texts);
    EXPECT_EQ(few.tokens, microbatch + 64 * 20);
    const TextRoom more = text_room(test_.job, view(192));
    EXPECT_EQ(more.texts, 192);
    EXPECT_EQ(more.tokens, 3 * microbatch + 192 * 20);
    for (AdapterJob& adapter : test_.job.adapters) adapter.global_batch_size = 10;
    EXPECT_EQ(text_room(test_.job, view(192)).texts, 20);
}

}  // namespace
}  // namespace loratrain::plan_test
