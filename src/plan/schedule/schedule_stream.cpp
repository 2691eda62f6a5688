#include "plan/schedule/schedule_stream.h"

#include <algorithm>
#include <map>
#include <utility>

#include "base/error.h"
#include "plan/cost/cost_model.h"
#include "plan/loss_denominator.h"
#include "plan/pack/batch_source.h"
#include "plan/pack/pack_block.h"
#include "plan/replica_view.h"
#include "plan/schedule/admission.h"
#include "plan/schedule/check_window.h"
#include "plan/schedule/lora_columns.h"
#include "plan/schedule/pipeline_actions.h"

namespace loratrain {

namespace {

constexpr std::int64_t most_rounds_per_block = 32;
constexpr std::int64_t microbatches_per_stage = 8;

std::int64_t mean_step_tokens(const Job& job, const Plan& plan,
                              std::span<const DatasetInfo> datasets, std::size_t adapter) {
    const std::int64_t tokens = datasets[index(job.adapters[adapter].dataset)].train_tokens();
    return tokens / std::max(1, plan.adapters[adapter].steps_per_epoch);
}

std::int32_t distance_to_multiple(std::int32_t round, std::int32_t every) {
    return every - round % every;
}

}  // namespace

std::int32_t rounds_per_block(const Job& job, const Plan& plan,
                              std::span<const DatasetInfo> datasets) {
    const ReplicaPlan& replica = only_replica(plan).replica;
    const auto stages = static_cast<std::int64_t>(replica.stages.size());
    if (stages == 1 || job.schedule.policy != SchedulePolicy::balanced) return 1;
    std::int64_t tokens = 0;
    for (const AdapterId a : admit(job, plan, std::vector<AdapterClaim>(job.adapters.size()))) {
        tokens += mean_step_tokens(job, plan, datasets, index(a));
    }
    const std::int64_t microbatches = std::max<std::int64_t>(1, tokens / replica.microbatch_tokens);
    return static_cast<std::int32_t>(std::clamp<std::int64_t>(
        microbatches_per_stage * stages / microbatches, 1, most_rounds_per_block));
}

static PackRules pack_rules(const Job& job, const ReplicaView& view, int threads) {
    const Plan& plan = view.plan;
    PackRules rules;
    rules.policy = job.schedule.policy;
    rules.packing = job.schedule.packing;
    rules.capacity = view.replica.microbatch_tokens;
    rules.stages = view.replica.stages;
    rules.max_in_flight = view.replica.max_in_flight;
    rules.costs =
        built_in_costs(plan.model, plan.compute, plan.backend == BackendKind::cuda ? "h100" : "cpu",
                       view.replica.tensor);
    rules.recompute = Recompute::none;  // recomputation must not change results
    rules.solver_seconds = job.schedule.solver_seconds;
    rules.threads = threads;
    return rules;
}

struct ScheduleStream::State {
    State(const Job& of_job, const Plan& of_plan, std::span<const DatasetInfo> infos,
          const Progress& start, int threads)
        : job(of_job),
          plan(of_plan),
          view(only_replica(of_plan)),
          datasets(infos),
          progress(start),
          rules(pack_rules(of_job, view, threads)),
          per_block(rounds_per_block(of_job, of_plan, infos)),
          actions(view, false),
          checker(of_job, view) {
        LORATRAIN_CHECK(progress.steps.size() == plan.adapters.size() &&
                            progress.stopped.size() == plan.adapters.size(),
                        "progress does not match the plan's adapters");
        for (std::size_t a = 0; a < plan.adapters.size(); ++a) {
            sources.emplace_back(job, plan, AdapterId{static_cast<std::int32_t>(a)}, orders);
        }
    }

    bool trains(std::size_t a) const {
        return !progress.stopped[a] && progress.steps[a] < plan.adapters[a].total_steps;
    }

    std::int32_t block_end(std::int32_t round) const {
        std::int32_t rounds = distance_to_multiple(round, per_block);
        for (const int every : {job.eval.every_steps, job.checkpoint.every_steps}) {
            if (every > 0) rounds = std::min(rounds, distance_to_multiple(round, every));
        }
        bool any = false;
        for (std::size_t a = 0; a < plan.adapters.size(); ++a) {
            if (!trains(a)) continue;
            any = true;
            const std::int32_t ahead = round - progress.round;
            const std::int32_t left = plan.adapters[a].total_steps - progress.steps[a] - ahead;
            if (left > 0) rounds = std::min(rounds, left);
        }
        return any ? rounds : 0;
    }

    Round take_round(Window& window);
    void add_block(std::int32_t rounds, Window& window);
    void place(Window& window, std::size_t first_batch, std::vector<Microbatch> microbatches) const;

    const Job& job;
    const Plan& plan;
    ReplicaView view;
    std::span<const DatasetInfo> datasets;
    Progress progress;
    PackRules rules;
    std::int32_t per_block;
    FillingCounts fillings;
    SampleOrders orders;
    std::vector<BatchSource> sources;
    PipelineActions actions;
    StreamChecker checker;
    bool begun = false;
    std::int32_t batches = 0;
    std::int32_t microbatches = 0;
};

/// The next round's batches, noted in the window.
Round ScheduleStream::State::take_round(Window& window) {
    Round round;
    for (std::size_t a = 0; a < plan.adapters.size(); ++a) {
        if (!trains(a)) continue;
        PendingBatch pending = sources[a].batch(progress.steps[a], datasets);
        BatchPlan batch;
        batch.adapter = pending.adapter;
        batch.step = pending.step;
        batch.round = progress.round;
        batch.epoch = pending.step / plan.adapters[a].steps_per_epoch;
        batch.last_of_adapter = pending.step + 1 == plan.adapters[a].total_steps;
        for (const SampleRef& sample : pending.samples) {
            batch.tokens += sample.tokens;
            batch.targets += sample.targets;
        }
        batch.denominator = loss_denominator(batch);
        batch.padding = -batch.tokens;
        batch.samples = static_cast<std::int32_t>(pending.samples.size());
        window.batches.push_back(batch);
        round.push_back(std::move(pending));
        ++progress.steps[a];
    }
    ++progress.round;
    ++window.rounds;
    return round;
}

void ScheduleStream::State::add_block(std::int32_t rounds, Window& window) {
    const std::size_t first_batch = window.batches.size();
    std::vector<Round> block;
    block.reserve(static_cast<std::size_t>(rounds));
    for (std::int32_t r = 0; r < rounds; ++r) block.push_back(take_round(window));
    place(window, first_batch, pack_block(rules, block, &fillings));
}

/// Appends a block's microbatches and notes where its batches lie and what they hold.
void ScheduleStream::State::place(Window& window, std::size_t first_batch,
                                  std::vector<Microbatch> packed) const {
    std::map<std::pair<AdapterId, std::int32_t>, BatchPlan*> batch_of;
    for (std::size_t b = first_batch; b < window.batches.size(); ++b) {
        BatchPlan& batch = window.batches[b];
        batch.first_microbatch = MicrobatchId{-1};
        batch_of[{batch.adapter, batch.step}] = &batch;
    }
    for (Microbatch& microbatch : packed) {
        const MicrobatchId id{window.first_microbatch +
                              static_cast<std::int32_t>(window.microbatches.size())};
        for (const Segment& segment : microbatch.segments) {
            BatchPlan& batch = *batch_of.at({segment.adapter, segment.step});
            if (number(batch.first_microbatch) < 0) batch.first_microbatch = id;
            batch.last_microbatch = id;
            batch.padding += segment.tokens();
        }
        microbatch.columns = lora_columns(job, view, microbatch.segments);
        window.microbatches.push_back(std::move(microbatch));
    }
}

ScheduleStream::ScheduleStream(const Job& job, const Plan& plan,
                               std::span<const DatasetInfo> datasets, const Progress& start,
                               int threads)
    : state_(new State(job, plan, datasets, start, threads)) {}
ScheduleStream::~ScheduleStream() = default;

Window ScheduleStream::next(std::int32_t rounds, bool drain, bool cut_block) {
    State& state = *state_;
    Window window;
    window.first_round = state.progress.round;
    window.begins = !std::exchange(state.begun, true);
    window.drains = drain;
    window.first_batch = state.batches;
    window.first_microbatch = state.microbatches;
    while (window.rounds < rounds) {
        const std::int32_t block = state.block_end(state.progress.round);
        if (block == 0) break;
        state.add_block(cut_block ? std::min(block, rounds - window.rounds) : block, window);
    }
    state.batches += static_cast<std::int32_t>(window.batches.size());
    state.microbatches += static_cast<std::int32_t>(window.microbatches.size());
    state.actions.add_to(window);
    const std::vector<std::string> findings = state.checker.check(window);
    if (!findings.empty()) {
        throw Error("the planned window is not valid:\n  " + join(findings, "\n  "));
    }
    return window;
}

std::int32_t ScheduleStream::round() const {
    return state_->progress.round;
}

const FillingCounts& ScheduleStream::fillings() const {
    return state_->fillings;
}

std::size_t ScheduleStream::size() const {
    return state_->actions.size() + state_->checker.size();
}

}  // namespace loratrain
