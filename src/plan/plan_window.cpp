#include "plan/plan_window.h"

#include <algorithm>
#include <optional>
#include <set>

#include "base/error.h"
#include "plan/check_window.h"
#include "plan/pack_microbatches.h"
#include "plan/pipeline_actions.h"
#include "plan/sample_order.h"

namespace loratrain {

namespace {

/// Global batches of one adapter; remembers the epoch it was asked for last.
class BatchSource {
  public:
    BatchSource(const Job& job, const Plan& plan, AdapterId adapter)
        : spec_(job.adapter(adapter)),
          dataset_(job.dataset(spec_.dataset)),
          plan_(plan.adapters[index(adapter)]) {}

    std::vector<std::int32_t> samples(std::int32_t step) {
        const std::int32_t epoch = step / plan_.steps_per_epoch;
        if (epoch != epoch_) {
            order_ = epoch_order(spec_.seed, dataset_.name, epoch, plan_.samples, dataset_.shuffle);
            epoch_ = epoch;
        }
        const std::int64_t size = spec_.global_batch_size;
        const std::int64_t first = (step % plan_.steps_per_epoch) * size;
        const std::int64_t last = std::min(first + size, plan_.samples);
        return {order_.begin() + first, order_.begin() + last};
    }

  private:
    const AdapterJob& spec_;
    const DatasetJob& dataset_;
    const AdapterPlan& plan_;
    std::int32_t epoch_ = -1;
    std::vector<std::int32_t> order_;
};

/// A global batch before packing.
struct PendingBatch {
    AdapterId adapter{};
    std::int32_t step = 0;
    std::vector<std::int32_t> samples;
    const std::vector<SampleInfo>* infos = nullptr;
};

class WindowBuilder {
  public:
    explicit WindowBuilder(const Plan& plan) : plan_(plan) {}

    /// Packs one round group by group; `batches` in adapter order.
    void add_round(const std::vector<PendingBatch>& batches) {
        std::set<std::int32_t> groups;
        for (const PendingBatch& batch : batches) groups.insert(group_of(batch));
        const bool fills_pipeline = groups.size() >= plan_.replica.stages.size();
        for (const std::int32_t group : groups) {
            std::vector<PackItem> items;
            for (const PendingBatch& batch : batches) {
                if (group_of(batch) == group) add_batch(batch, items);
            }
            append(pack(items, fills_pipeline));
        }
        batches_before_round_ = window_.batches.size();
    }

    Window finish() {
        add_pipeline_actions(plan_, window_);
        const std::vector<std::string> findings = check_window(plan_, window_);
        if (!findings.empty()) {
            throw Error("the planned window is not valid:\n  " + join(findings, "\n  "));
        }
        return std::move(window_);
    }

    Window& window() { return window_; }

  private:
    std::int32_t group_of(const PendingBatch& batch) const {
        return plan_.adapters[index(batch.adapter)].group;
    }

    void add_batch(const PendingBatch& pending, std::vector<PackItem>& items) {
        const AdapterPlan& adapter = plan_.adapters[index(pending.adapter)];
        BatchPlan batch;
        batch.adapter = pending.adapter;
        batch.step = pending.step;
        batch.epoch = window_.evaluation ? 0 : pending.step / adapter.steps_per_epoch;
        batch.samples = static_cast<std::int32_t>(pending.samples.size());
        batch.first_microbatch = MicrobatchId{-1};
        batch.last_of_adapter = !window_.evaluation && pending.step + 1 == adapter.total_steps;
        for (const std::int32_t sample : pending.samples) {
            const SampleInfo& info = (*pending.infos)[static_cast<std::size_t>(sample)];
            batch.tokens += info.tokens;
            batch.targets += info.targets;
            items.push_back({pending.adapter, pending.step, {sample, info.tokens}});
        }
        window_.batches.push_back(batch);
    }

    std::vector<Microbatch> pack(const std::vector<PackItem>& items, bool fills_pipeline) const {
        if (fills_pipeline) return pack_first_fit(items, plan_.microbatch_tokens);
        return pack_balanced(items, plan_.microbatch_tokens,
                             static_cast<std::int64_t>(plan_.replica.stages.size()));
    }

    void append(std::vector<Microbatch> microbatches) {
        for (Microbatch& microbatch : microbatches) {
            const MicrobatchId id{static_cast<std::int32_t>(window_.microbatches.size())};
            for (const Segment& segment : microbatch.segments) {
                BatchPlan& batch = batch_of_round(segment.adapter);
                if (number(batch.first_microbatch) < 0) batch.first_microbatch = id;
                batch.last_microbatch = id;
            }
            window_.microbatches.push_back(std::move(microbatch));
        }
    }

    BatchPlan& batch_of_round(AdapterId adapter) {
        return *std::find_if(
            window_.batches.begin() + static_cast<std::ptrdiff_t>(batches_before_round_),
            window_.batches.end(), [&](const BatchPlan& b) { return b.adapter == adapter; });
    }

    const Plan& plan_;
    Window window_;
    std::size_t batches_before_round_ = 0;
};

}  // namespace

Window plan_window(const Job& job, const Plan& plan, std::span<const DatasetInfo> datasets,
                   const Progress& progress, std::int32_t rounds) {
    LORATRAIN_CHECK(progress.steps.size() == plan.adapters.size() &&
                        progress.stopped.size() == plan.adapters.size(),
                    "progress does not match the plan's adapters");
    std::vector<BatchSource> sources;
    for (std::size_t a = 0; a < plan.adapters.size(); ++a) {
        sources.emplace_back(job, plan, AdapterId{static_cast<std::int32_t>(a)});
    }
    WindowBuilder builder(plan);
    builder.window().first_round = progress.round;
    for (std::int32_t round = 0; round < rounds; ++round) {
        std::vector<PendingBatch> batches;
        for (std::size_t a = 0; a < sources.size(); ++a) {
            const std::int32_t step = progress.steps[a] + round;
            if (progress.stopped[a] || step >= plan.adapters[a].total_steps) continue;
            const AdapterId id{static_cast<std::int32_t>(a)};
            batches.push_back({id, step, sources[a].samples(step),
                               &datasets[index(job.adapter(id).dataset)].train});
        }
        if (batches.empty()) break;
        builder.add_round(batches);
        ++builder.window().rounds;
    }
    return builder.finish();
}

Window plan_eval_window(const Job& job, const Plan& plan, std::span<const DatasetInfo> datasets,
                        const std::vector<AdapterId>& adapters) {
    std::vector<PendingBatch> batches;
    const std::set<AdapterId> in_order(adapters.begin(), adapters.end());
    for (const AdapterId id : in_order) {
        const std::vector<SampleInfo>& samples = datasets[index(job.adapter(id).dataset)].eval;
        if (samples.empty()) continue;
        batches.push_back({id, 0, epoch_order(0, "", 0, std::ssize(samples), false), &samples});
    }
    WindowBuilder builder(plan);
    builder.window().evaluation = true;
    if (!batches.empty()) {
        builder.add_round(batches);
        builder.window().rounds = 1;
    }
    return builder.finish();
}

std::vector<std::int32_t> batch_samples(const Job& job, const Plan& plan, AdapterId adapter,
                                        std::int32_t step) {
    return BatchSource(job, plan, adapter).samples(step);
}

}  // namespace loratrain
