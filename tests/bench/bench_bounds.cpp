#include <array>
#include <cstdint>
#include <cstdio>
#include <string>
#include <vector>

#include "base/text.h"
#include "bench/result_origin.h"
#include "bench/summary_job.h"
#include "config/model_presets.h"
#include "plan/deploy/make_plan.h"
#include "plan/milp.h"
#include "plan/pack/batch_source.h"
#include "plan/pack/pack_balanced.h"
#include "plan/schedule/schedule_stream.h"
#include "support/block_bound.h"

// How far packings are from what no packing can beat (support/block_bound.h), and what
// `packing: milp` changes: llama-3.1-8b on H200s, four adapters, by simulation in the steady state.
// Writes the lines of results/*.jsonl (write_results.py): bench_bounds COMMIT DEVICE DATE

namespace loratrain {
namespace {

constexpr int adapters = 4;
constexpr int blocks = 4;
constexpr int few_repeats = 8;  // of a block; time per block is that of as many more
constexpr std::int32_t samples = 4096;

struct Setting {
    const Lengths* dataset;  ///< null = mixed
    std::int32_t stages;
    std::int32_t batch;
};

Job job_of(std::int32_t batch) {
    Job job = summary_job(adapters, batch);
    job.schedule.packing = Packing::greedy;
    for (AdapterJob& adapter : job.adapters) adapter.max_steps = 512;
    return job;
}

/// Nanoseconds per block in the steady state.
double steady(const PackRules& rules, const BlockItems& block, const Bins& bins) {
    const auto time = [&](int repeats) {
        return pipeline_time(pipeline_load(rules, block, bins, repeats)).makespan;
    };
    return static_cast<double>(time(2 * few_repeats) - time(few_repeats)) / few_repeats;
}

class Comparison {
  public:
    explicit Comparison(const Setting& work)
        : work_(work), job_(job_of(work.batch)), data_(summary_data(work.dataset, samples)) {
        Cluster cluster;
        cluster.ranks = work.stages;
        cluster.backend = BackendKind::cuda;
        cluster.device = "h200";
        plan_ = make_plan(job_, *model_preset("llama-3.1-8b"), data_, cluster);
        const ReplicaPlan& replica = plan_.replicas.front();
        rules_.packing = Packing::greedy;
        rules_.capacity = replica.microbatch_tokens;
        rules_.stages = replica.stages;
        rules_.max_in_flight = replica.max_in_flight;
        rules_.costs = plan_.costs;
    }

    std::string figures() {
        SampleOrders orders;
        std::vector<BatchSource> sources;
        for (int a = 0; a < adapters; ++a) {
            sources.emplace_back(job_, plan_, AdapterId{a}, orders);
        }
        const std::int32_t per_block = rounds_per_block(job_, plan_, data_);
        for (std::int32_t first = 0; first < blocks * per_block; first += per_block) {
            std::vector<Round> rounds(static_cast<std::size_t>(per_block));
            for (std::size_t r = 0; r < rounds.size(); ++r) {
                for (BatchSource& source : sources) {
                    rounds[r].push_back(source.batch(first + static_cast<std::int32_t>(r), data_));
                }
            }
            add(block_items(rules_, rounds));
        }
        return line();
    }

  private:
    void add(const BlockItems& block) {
        for (const Portion& portion : portions(block, 1)) {
            std::vector<std::int64_t> lengths;
            for (const std::int32_t i : portion.items) lengths.push_back(block.item(i).tokens);
            filled_ += std::ssize(pack_greedy(lengths, block.capacity));
            least_ += least_bins(lengths, block.capacity);
        }
        bound_ += block_bound(rules_, block).nanoseconds;
        greedy_ += packed(block, Packing::greedy);
        milp_ += packed(block, Packing::milp);
    }

    double packed(const BlockItems& block, Packing packing) {
        PackRules rules = rules_;
        rules.packing = packing;
        Job job = job_;
        job.schedule.packing = packing;
        rules.changes_per_item = pack_rules(job, only_replica(plan_), 1).changes_per_item;
        const BalancedPacking best = pack_balanced_block(rules, block);
        if (packing == Packing::greedy) fillings_.add(best.variant.filling);
        return steady(rules, block, best.bins);
    }

    std::string line() const {
        const auto percent = [](double value, double of) {
            const double more = 100.0 * (value / of - 1.0);
            return cat(more < 0.0 ? "" : "+", format_fixed(more, 2), "%");
        };
        return cat(R"({"bins of first-fit": ")", filled_, R"(", "at least": ")", least_,
                   R"(", "step time over its bound": ")", percent(greedy_, bound_),
                   R"(", "packing: milp changes it by": ")", percent(milp_, greedy_),
                   R"(", "filled by": ")", to_text(fillings_), R"("})");
    }

    Setting work_;
    Job job_;
    std::vector<DatasetInfo> data_;
    Plan plan_;
    PackRules rules_;
    std::int64_t filled_ = 0;
    std::int64_t least_ = 0;
    double bound_ = 0.0;
    double greedy_ = 0.0;
    double milp_ = 0.0;
    FillingCounts fillings_;
};

void run(const std::string& origin) {
    const std::array<const Lengths*, 4> datasets{&summary_lengths[0], &summary_lengths[1],
                                                 &summary_lengths[2], nullptr};
    for (const Lengths* dataset : datasets) {
        for (const std::int32_t stages : {4, 8}) {
            for (const std::int32_t batch : {8, 32, 64}) {
                const std::string figures = Comparison({dataset, stages, batch}).figures();
                std::printf(
                    R"({"section": "Packing by simulation beside bounds, 8B, 4 adapters, H200", )"
                    R"("case": "%s, batch %d, %d stages", "figures": %s, %s})"
                    "\n",
                    dataset != nullptr ? dataset->name : "mixed", batch, stages, figures.c_str(),
                    origin.c_str());
                std::fflush(stdout);
            }
        }
    }
}

}  // namespace
}  // namespace loratrain

int main(int argc, char** argv) {
    const std::optional<std::string> origin = loratrain::result_origin(argc, argv);
    if (!origin) return 2;
    if (!loratrain::milp_available()) std::fprintf(stderr, "without a solver MILP is greedy\n");
    loratrain::run(*origin);
    return 0;
}
