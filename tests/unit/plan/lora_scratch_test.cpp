#include "kernels/lora/lora_sizes.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <span>
#include <vector>

#include "base/arithmetic.h"
#include "plan/memory/engine_memory.h"
#include "support/sanitized.h"
#include "unit/plan/plan_fixtures.h"

namespace loratrain::plan_test {

namespace {

using kernels::LoraOutputs;
using kernels::LoraRowCuts;

constexpr int microbatches_of_a_case = 12;

int one_of(Draw& draw, const std::vector<int>& values) {
    return values[static_cast<std::size_t>(draw.between(0, static_cast<int>(values.size()) - 1))];
}

/// Linears that read one X.
const std::vector<std::vector<Linear>>& groups() {
    static const std::vector<std::vector<Linear>> all{
        {Linear::q, Linear::k, Linear::v}, {Linear::o}, {Linear::gate, Linear::up}, {Linear::down}};
    return all;
}

/// What the launchers ask for in a microbatch, by the kernels' own cuts.
class AskedScratch {
  public:
    AskedScratch(const Case& test, const Plan& plan, Draw& draw) : test_(test), plan_(plan) {
        const std::int64_t most = plan.replicas[0].microbatch_tokens;
        std::int64_t rows =
            draw.between(0, 3) == 0 ? most : draw.between(1, static_cast<int>(most));
        processors_ = one_of(draw, {1, 46, 108, 132, 148, 192});
        for (std::size_t i = test.job.adapters.size(); i-- > 0 && rows > 0;) {
            const std::int64_t part = i == 0 ? rows : draw.between(0, static_cast<int>(rows));
            if (part > 0) parts_.push_back(part);
            rows -= part;
        }
        for (const std::int64_t part : parts_) cuts_.rows += part;
        cuts_.parts = parts_.data();
        cuts_.count = static_cast<int>(parts_.size());
    }

    std::int64_t bytes() const {
        std::int64_t most = bytes_of_gated();
        for (const std::vector<Linear>& group : groups()) {
            const std::span<const Linear> all = group;
            most = std::max(most, bytes_of(all));
            for (std::size_t i = 0; i < all.size(); ++i) {
                most = std::max(most, bytes_of(all.subspan(i, 1)));
            }
        }
        return most;
    }

  private:
    std::int32_t rank_on(const AdapterJob& adapter, Linear linear) const {
        return adapter.targets_linear(linear) ? adapter.r : 0;
    }
    std::int32_t largest_rank(std::span<const Linear> linears) const {
        std::int32_t largest = 0;
        for (const Linear linear : linears) {
            for (const AdapterJob& adapter : test_.job.adapters) {
                largest = std::max(largest, rank_on(adapter, linear));
            }
        }
        return largest;
    }

    /// lora_shrink, lora_backward and lora_grad_a of linears that read one X.
    std::int64_t bytes_of(std::span<const Linear> linears) const {
        const std::int32_t largest = largest_rank(linears);
        if (largest == 0) return 0;
        const std::int64_t in = linear_shape(plan_.model, linears[0]).in;
        std::int64_t copied = 0;
        std::int64_t most_ranks = 0;
        for (const AdapterJob& adapter : test_.job.adapters) {
            std::int64_t ranks = 0;
            for (const Linear linear : linears) {
                const std::int32_t rank = rank_on(adapter, linear);
                copied += round_up(rank, kernels::lora_copy_row_multiple);
                ranks += round_up(rank, kernels::lora_pass_rank_multiple);
            }
            most_ranks = std::max(most_ranks, ranks);
        }
        const std::int32_t rows = kernels::lora_gradient_tile_rows(
            cuts_, kernels::pieces(in, kernels::lora_pass_columns), processors_);
        return std::max({kernels::lora_copy_bytes(copied, in),
                         kernels::lora_grad_a_bytes(count_tiles(cuts_, rows), most_ranks, in),
                         bytes_of_backward(linears, largest)});
    }

    std::int64_t bytes_of_backward(std::span<const Linear> linears, std::int32_t largest) const {
        std::vector<std::int64_t> ends;
        for (const Linear linear : linears) {
            ends.push_back((ends.empty() ? 0 : ends.back()) +
                           linear_shape(plan_.model, linear).out);
        }
        const LoraOutputs dy{cuts_.rows, ends.data(), static_cast<int>(ends.size())};
        const kernels::LoraBackwardCut cut =
            kernels::lora_backward_cut(dy, largest, cuts_, processors_);
        return kernels::lora_backward_bytes(
            count_tiles(cuts_, cut.tile_rows), dy.parts(cut.part_columns),
            round_up(largest, kernels::lora_pass_rank_multiple), dy.columns(), dy.rows);
    }

    std::int64_t bytes_of_gated() const {
        const std::int64_t f = plan_.model.dense().size;
        const std::int32_t rank_behind = largest_rank(groups()[3]);
        if (rank_behind == 0 || rank_behind > kernels::lora_pass_rank_multiple) return 0;
        std::int64_t bytes = kernels::lora_gated_forward_bytes(f, cuts_.rows);
        const std::int32_t before = largest_rank(groups()[2]);
        if (before > 0 && before <= kernels::lora_pass_rank_multiple) {
            const std::int32_t rows = kernels::lora_gradient_tile_rows(
                cuts_, kernels::pieces(f, kernels::lora_pass_columns), processors_);
            bytes = std::max(
                bytes, kernels::lora_gated_backward_bytes(count_tiles(cuts_, rows), f, cuts_.rows));
        }
        return bytes;
    }

    const Case& test_;
    const Plan& plan_;
    std::vector<std::int64_t> parts_;
    LoraRowCuts cuts_;
    int processors_ = 0;
};

Case drawn_case(Draw& draw) {
    Case test = uniform_case(draw.between(1, 9), 1, 16, 128, 2);
    test.cluster.backend = BackendKind::cuda;
    test.model.layers = 2;
    test.model.attention().head_dim = 128;
    test.model.attention().kv_heads = one_of(draw, {1, 2, 8});
    test.model.attention().heads = test.model.attention().kv_heads * one_of(draw, {1, 4});
    test.model.hidden_size = 128 * draw.between(1, 40);
    test.model.dense().size = 64 * draw.between(1, 240);
    test.job.parallel.microbatch_tokens = one_of(draw, {256, 1024, 4096, 16384, 40000});
    const int most_ranks = one_of(draw, {16, 16, 64, 200});
    for (AdapterJob& adapter : test.job.adapters) {
        adapter.r = draw.between(1, most_ranks);
        adapter.targets = {};
        for (const std::vector<Linear>& group : groups()) {
            for (const Linear linear : group) {
                adapter.targets[static_cast<std::size_t>(linear)] = !draw.one_in(3);
            }
        }
        adapter.targets[static_cast<std::size_t>(Linear::q)] = true;
    }
    return test;
}

}  // namespace

TEST(LoraScratch, WhatLaunchersAskForWasPlanned) {
    for (int seed = 0; seed < random_cases(500); ++seed) {
        Draw draw(static_cast<std::uint64_t>(seed));
        const Case test = drawn_case(draw);
        const Plan plan = test.plan();
        const std::uint64_t planned =
            engine_layout(test.job, only_replica(plan), plan.replicas[0].stages[0])
                .operator_scratch;
        for (int i = 0; i < microbatches_of_a_case; ++i) {
            const AskedScratch microbatch(test, plan, draw);
            EXPECT_LE(static_cast<std::uint64_t>(microbatch.bytes()), planned)
                << "case " << seed << ", microbatch " << i;
        }
    }
}

}  // namespace loratrain::plan_test
