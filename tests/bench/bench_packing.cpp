#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <span>
#include <utility>
#include <vector>

#include "config/model_presets.h"
#include "plan/cost/built_in_costs.h"
#include "plan/milp.h"
#include "plan/pack/pack_balanced.h"
#include "support/summary_lengths.h"

// What the packings of a block are worth: llama-3.1-8b with its head on H200s, four adapters with
// global batch 8, sample lengths drawn from log-normal distributions like those of XSum,
// CNN/DailyMail and WikiSum. Idle shares by simulation, from an empty pipeline to an empty one.
// bench_packing [rounds [threads]]

namespace loratrain {
namespace {

constexpr std::int32_t adapters = 4;
constexpr std::int32_t global_batch = 8;
constexpr std::int32_t block_rounds = 32;
constexpr std::int32_t planned_samples = 25600;
constexpr std::int64_t padding_multiple = 128;

constexpr const Lengths* datasets[] = {&summary_lengths[0], &summary_lengths[1],
                                       &summary_lengths[2], nullptr};

const char* name_of(const Lengths* dataset) {
    return dataset != nullptr ? dataset->name : "mixed";
}

double seconds_now() {
    return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch())
        .count();
}

class Case {
  public:
    Case(const Lengths* dataset, std::int32_t stages, std::int64_t capacity, std::int32_t rounds,
         int threads)
        : rounds_(summary_rounds(dataset, rounds)) {
        const ModelSpec model = *model_preset("llama-3.1-8b");
        rules_.capacity = capacity;
        rules_.max_in_flight = stages;
        rules_.costs = built_in_costs(model, DType::bf16, "h200");
        rules_.threads = threads;
        rules_.stages =
            best_split(rules_, static_cast<std::int32_t>(model.layers), stages, load_of(rounds_));
        block_ = block_items(rules_, rounds_);
    }

    void print(const char* dataset) {
        std::printf("\n%s: mean %.0f tokens, %zu stages of", dataset,
                    static_cast<double>(block_.tokens) / static_cast<double>(block_.items.size()),
                    rules_.stages.size());
        for (const StagePlan& stage : rules_.stages) std::printf(" %d", stage.layer_count);
        std::printf(" layers, capacity %ld; idle by the split alone %.2f%%\n",
                    static_cast<long>(rules_.capacity), 100.0 * split_share());
        std::printf("  %-22s %6s %8s %8s %7s %10s\n", "", "mb", "smallest", "idle", "groups",
                    "tokens/s");
        baseline("sequential", SchedulePolicy::sequential, 1);
        baseline("1f1b", SchedulePolicy::one_f_one_b, rules_.max_in_flight);
        baseline("mlora", SchedulePolicy::mlora, rules_.max_in_flight);
        filled(false);
        if (milp_available()) filled(true);
        const BalancedPacking best = blocks();
        row("balanced", best.bins, block_, best.variant.groups);
        if (name(best.variant.filling) != nullptr) {
            std::printf("  (last block: %s)\n", name(best.variant.filling));
        }
    }

  private:
    static const char* name(Filling filling) {
        constexpr const char* names[] = {"filled, merged", "MILP, merged", "evened", "streamed"};
        return names[static_cast<int>(filling)];
    }

    /// Idle share if the busiest stage never paused.
    double split_share() const {
        Bins all(1);
        for (std::size_t i = 0; i < block_.items.size(); ++i) {
            all[0].push_back(static_cast<std::int32_t>(i));
        }
        const PipelineLoad load = pipeline_load(rules_, block_, all);
        double total = 0.0;
        double most = 0.0;
        for (std::size_t s = 0; s < rules_.stages.size(); ++s) {
            const auto time = static_cast<double>(load.forward[s] + load.backward[s]);
            total += time;
            most = std::max(most, time);
        }
        return 1.0 - total / (most * static_cast<double>(rules_.stages.size()));
    }

    void baseline(const char* label, SchedulePolicy policy, std::int32_t in_flight) {
        PackRules rules = rules_;
        rules.policy = policy;
        rules.max_in_flight = in_flight;
        std::swap(rules, rules_);
        row(label, bins_of(pack_microbatches(rules_, rounds_)), block_, adapters);
        std::swap(rules, rules_);
    }

    /// Microbatches back as bins of items; sample index = its number in the adapter's batches.
    Bins bins_of(const std::vector<Microbatch>& microbatches) const {
        Bins bins;
        for (const Microbatch& microbatch : microbatches) {
            std::vector<std::int32_t>& bin = bins.emplace_back();
            for (const Segment& segment : microbatch.segments) {
                const std::int32_t batch = segment.step * adapters + number(segment.adapter);
                const std::int32_t first = block_.batch(batch).first_item;
                for (const SampleRef& sample : segment.samples) {
                    bin.push_back(first + sample.index - segment.step * global_batch);
                }
            }
        }
        return bins;
    }

    /// Filled microbatches, without and with the merge pass, at the best number of groups.
    void filled(bool milp) {
        Bins plain;
        Bins merged;
        std::int64_t least = 0;
        std::int32_t best = 0;
        double seconds = 0.0;
        for (std::int32_t groups = 1; groups <= adapters; ++groups) {
            const double start = seconds_now();
            const auto packed = pack_filled(block_, portions(block_, groups), rules_, milp);
            const Bins candidate = merge_portions(rules_, block_, packed).bins;
            const std::int64_t time =
                pipeline_time(pipeline_load(rules_, block_, candidate)).makespan;
            if (best > 0 && time >= least) continue;
            seconds = seconds_now() - start;
            least = time;
            best = groups;
            plain = concatenate(packed);
            merged = candidate;
        }
        row(milp ? "MILP" : "greedy", plain, block_, best);
        row(milp ? "MILP + merge" : "greedy + merge", merged, block_, best);
        if (milp) std::printf("  (packed by MILP in %.2f s)\n", seconds);
    }

    /// As a run plans: block after block.
    BalancedPacking blocks() {
        BalancedPacking all;
        for (std::int32_t first = 0; first < block_.rounds; first += block_rounds) {
            const std::int32_t count = std::min(block_rounds, block_.rounds - first);
            const std::span<const Round> some(rounds_.data() + first,
                                              static_cast<std::size_t>(count));
            const BlockItems block = block_items(rules_, some);
            BalancedPacking packing = pack_balanced_block(rules_, block);
            const std::int32_t offset = first * adapters * global_batch;
            for (auto& bin : packing.bins) {
                for (std::int32_t& item : bin) item += offset;
                all.bins.push_back(bin);
            }
            all.variant = packing.variant;
        }
        return all;
    }

    void row(const char* label, const Bins& bins, const BlockItems& block, std::int32_t groups) {
        std::int64_t smallest = rules_.capacity;
        for (const auto& bin : bins) {
            std::int64_t tokens = 0;
            for (const std::int32_t item : bin) tokens += block.item(item).tokens;
            smallest = std::min(smallest, tokens);
        }
        const PipelineTime time = pipeline_time(pipeline_load(rules_, block, bins));
        const auto stages = static_cast<std::int32_t>(rules_.stages.size());
        std::printf("  %-22s %6zu %8ld %7.2f%% %7d %10.0f\n", label, bins.size(),
                    static_cast<long>(smallest), 100.0 * time.idle_share(stages), groups,
                    1e9 * static_cast<double>(block.tokens) / static_cast<double>(time.makespan));
    }

    PackRules rules_;
    std::vector<Round> rounds_;
    BlockItems block_;
};

/// Tokens that a padding multiple would add: each adapter's part of a microbatch is rounded up.
void print_padding(const Lengths* dataset) {
    const std::vector<Round> rounds = summary_rounds(dataset, 100);
    PackRules rules;
    rules.capacity = 6144;
    rules.max_in_flight = 4;
    rules.costs = built_in_costs(*model_preset("llama-3.1-8b"), DType::bf16, "h200");
    for (std::int32_t s = 0; s < 4; ++s) rules.stages.push_back({s, s * 8, 8, s == 0, s == 3});
    std::int64_t tokens = 0;
    std::int64_t padded = 0;
    for (const Microbatch& microbatch : pack_microbatches(rules, rounds)) {
        for (const Segment& segment : microbatch.segments) {
            tokens += segment.tokens();
            padded +=
                (segment.tokens() + padding_multiple - 1) / padding_multiple * padding_multiple;
        }
    }
    std::printf("  %-8s %.2f%% of the tokens\n", name_of(dataset),
                100.0 * static_cast<double>(padded - tokens) / static_cast<double>(tokens));
}

void print_planning(const Lengths* dataset, int threads) {
    const std::int32_t count = planned_samples / (adapters * global_batch);
    const std::vector<Round> rounds = summary_rounds(dataset, count);
    PackRules rules;
    rules.capacity = 6144;
    rules.max_in_flight = 4;
    rules.threads = threads;
    rules.costs = built_in_costs(*model_preset("llama-3.1-8b"), DType::bf16, "h200");
    for (std::int32_t s = 0; s < 4; ++s) rules.stages.push_back({s, s * 8, 8, s == 0, s == 3});
    const double start = seconds_now();
    std::size_t microbatches = 0;
    for (std::int32_t first = 0; first < count; first += block_rounds) {
        const std::span<const Round> some(
            rounds.data() + first, static_cast<std::size_t>(std::min(block_rounds, count - first)));
        microbatches += pack_microbatches(rules, some).size();
    }
    std::printf("  %-8s %.2f s, %zu microbatches\n", name_of(dataset), seconds_now() - start,
                microbatches);
}

void run(std::int32_t rounds, int threads) {
    for (const std::int32_t stages : {4, 2}) {
        for (const Lengths* dataset : datasets) {
            for (const std::int64_t capacity : {6144, 7168}) {
                Case(dataset, stages, capacity, rounds, threads).print(name_of(dataset));
            }
        }
    }
    std::printf("\nplanning %d samples in blocks of %d rounds, 4 stages, %d threads:\n",
                planned_samples, block_rounds, threads);
    for (const Lengths* dataset : datasets) print_planning(dataset, threads);
    std::printf("\nwhat a padding multiple of %ld would add (4 stages, capacity 6144):\n",
                static_cast<long>(padding_multiple));
    for (const Lengths* dataset : datasets) print_padding(dataset);
}

}  // namespace
}  // namespace loratrain

int main(int argc, char** argv) {
    const int rounds = argc > 1 ? std::atoi(argv[1]) : 100;
    const int threads = argc > 2 ? std::atoi(argv[2]) : 2;
    loratrain::run(std::max(1, rounds), std::max(1, threads));
    return 0;
}
