#pragma once

#include "plan/replica_view.h"
#include "unit/plan/plan_fixtures.h"

namespace loratrain::plan_test {

/// Three adapters whose samples have 8 to 56 tokens, one in sixteen 200.
inline Case skewed_case(int ranks) {
    Case test = uniform_case(3, ranks, 48, 8, 16);
    test.model = cheap_head_model(4);
    test.model.vocab_size = 64;
    test.cluster.ranks_per_node = ranks;
    for (std::size_t i = 0; i < 48; ++i) {
        const auto tokens = i % 16 == 0 ? 200 : static_cast<std::int32_t>(8 + 12 * (i % 5));
        test.datasets[0].train[i] = {tokens, tokens - 1};
    }
    test.job.parallel.microbatch_tokens.reset();
    return test;
}

/// The same where a rank has too little memory for the longest sample, but two lanes have enough.
inline Case tight_case(int ranks) {
    Case test = skewed_case(1);
    test.job.parallel.microbatch_tokens = 200;
    test.job.parallel.recompute = Recompute::none;
    const std::uint64_t needed = test.plan().memory.front().total();
    test.job.parallel.microbatch_tokens.reset();
    test.cluster.ranks = test.cluster.ranks_per_node = ranks;
    test.cluster.bytes_per_rank = needed - 1;
    return test;
}

}  // namespace loratrain::plan_test
