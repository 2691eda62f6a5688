#include "plan/schedule/schedule_stream.h"

#include <algorithm>
#include <iterator>
#include <optional>
#include <utility>

#include "base/error.h"
#include "plan/cost/built_in_costs.h"
#include "plan/cost/cost_model.h"
#include "plan/cost/device.h"
#include "plan/memory/memory_model.h"
#include "plan/pack/batch_source.h"
#include "plan/pack/pack_microbatches.h"
#include "plan/pack/sample_dispatch.h"
#include "plan/replica_view.h"
#include "plan/sample_counts.h"
#include "plan/schedule/admission_rules.h"
#include "plan/schedule/check_window.h"
#include "plan/schedule/evaluations.h"
#include "plan/schedule/pipeline_actions.h"
#include "plan/stage_layers.h"

namespace loratrain {

namespace {

constexpr std::int64_t most_rounds_per_block = 32;
constexpr std::int64_t microbatches_per_stage = 8;
constexpr std::int32_t thorough_changes = 60;

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
    if (plan.replicas.size() > 1) return 1;
    const std::vector<AdapterClaim> claims(job.adapters.size());
    return rounds_per_block(job, plan, datasets, admit(job, plan, claims));
}

std::int32_t rounds_per_block(const Job& job, const Plan& plan,
                              std::span<const DatasetInfo> datasets,
                              std::span<const AdapterId> admitted) {
    if (plan.replicas.size() > 1) return 1;
    const ReplicaPlan& replica = only_replica(plan).replica;
    const auto stages = static_cast<std::int64_t>(replica.stages.size());
    if (stages == 1 || job.schedule.policy != SchedulePolicy::balanced) return 1;
    // When batches come does not decide how they are packed.
    if (any_grow(datasets)) return 1;
    std::int64_t tokens = 0;
    for (const AdapterId a : admitted) {
        tokens += mean_step_tokens(job, plan, datasets, index(a));
    }
    const std::int64_t microbatches = std::max<std::int64_t>(1, tokens / replica.microbatch_tokens);
    return static_cast<std::int32_t>(std::clamp<std::int64_t>(
        microbatches_per_stage * stages / microbatches, 1, most_rounds_per_block));
}

PackRules pack_rules(const Job& job, const ReplicaView& view, int threads) {
    const Plan& plan = view.plan;
    PackRules rules;
    rules.policy = job.schedule.policy;
    rules.packing = job.schedule.packing;
    rules.capacity = view.replica.microbatch_tokens;
    rules.short_length = short_length(plan.model);
    rules.stages = view.replica.stages;
    rules.tensor = view.replica.tensor;
    rules.max_in_flight = view.replica.max_in_flight;
    rules.span = AttentionSpan(plan.model);
    rules.costs = built_in_costs(plan.model, plan.compute, packing_device(plan),
                                 view.replica.tensor, plan.fp8_linears);
    rules.recompute = Recompute::none;  // recomputation must not change results
    for (StagePlan& stage : rules.stages) stage.offloaded_layers = 0;
    rules.solver_seconds = job.schedule.solver_seconds;
    rules.threads = threads;
    if (rules.packing == Packing::milp) rules.changes_per_item = thorough_changes;
    return rules;
}

PackRules dispatch_rules_of(const Job& job, const ReplicaView& view) {
    PackRules rules = pack_rules(job, view, 1);
    rules.recompute = view.replica.recompute;
    for (StagePlan& stage : rules.stages) stage.kept_layers = 0;  // as above: memory decides them
    return rules;
}

/// One replica's part of a stream.
struct ReplicaStream {
    ReplicaStream(const Job& job, const ReplicaView& of_replica, int threads)
        : view(of_replica), rules(pack_rules(job, of_replica, threads)), actions(view) {}

    ReplicaView view;
    PackRules rules;
    PipelineActions actions;
    std::int32_t microbatches = 0;
};

struct ScheduleStream::State {
    State(const Job& of_job, const Plan& of_plan, std::span<const DatasetInfo> infos,
          const Progress& start, int threads, Evaluations of_adapters, PackedBlocks* blocks)
        : job(of_job),
          plan(of_plan),
          datasets(infos),
          progress(start),
          per_block(rounds_per_block(of_job, of_plan, infos)),
          known_blocks(blocks),
          checker(of_job, of_plan) {
        for (const ReplicaView& view : views_of(of_plan)) {
            replicas.push_back(std::make_unique<ReplicaStream>(of_job, view, threads));
            rules.push_back(replicas.back()->rules);
            dispatch_rules.push_back(dispatch_rules_of(of_job, view));
        }
        if (of_adapters == Evaluations::due) {
            evaluations.emplace(
                StreamEvaluations::Stream{job, plan, datasets, progress, dispatch_rules});
        }
        LORATRAIN_CHECK(progress.steps.size() == plan.adapters.size() &&
                            progress.stopped.size() == plan.adapters.size(),
                        "progress does not match the plan's adapters");
        take_adapters();
    }

    void take_adapters() {
        sources.clear();
        shared.clear();
        for (std::size_t a = 0; a < plan.adapters.size(); ++a) {
            sources.emplace_back(job, plan, AdapterId{static_cast<std::int32_t>(a)}, orders);
            if (replicas.size() > 1) shared.push_back(shared_adapter(a));
        }
    }

    bool trains(std::size_t a) const {
        return !progress.stopped[a] && progress.steps[a] < plan.adapters[a].total_steps;
    }

    std::int32_t stop_of(std::size_t a) const {
        return progress.stops.empty() ? plan.adapters[a].total_steps : progress.stops[a];
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
            for (const std::int32_t stop : {plan.adapters[a].total_steps, stop_of(a)}) {
                const std::int32_t left = stop - progress.steps[a] - ahead;
                if (left > 0) rounds = std::min(rounds, left);
            }
            const int exports = job.exports.every_steps;
            if (exports > 0) {
                rounds = std::min(rounds, distance_to_multiple(progress.steps[a] + ahead, exports));
            }
        }
        return any ? rounds : 0;
    }

    SharedAdapter shared_adapter(std::size_t a) const;
    Round take_round(std::vector<BatchPlan>& batches);
    std::vector<std::vector<Microbatch>> pack(const std::vector<Round>& block, JointWindow& joint);
    std::vector<Microbatch> packed_block(const std::vector<Round>& block);
    PackedShares packed_round(const Round& round, std::int32_t number);
    std::vector<std::vector<Microbatch>> pack_joint(const Round& round, std::int32_t number,
                                                    JointWindow& joint);
    void add_block(std::int32_t rounds, JointWindow& joint);
    void add_blocks(std::int32_t rounds, bool cut_block, JointWindow& joint);
    void add_actions(JointWindow& joint);
    void settle_batches(JointWindow& joint, std::size_t first_batch) const;

    const Job& job;
    const Plan& plan;
    std::span<const DatasetInfo> datasets;
    Progress progress;
    std::vector<std::unique_ptr<ReplicaStream>> replicas;
    std::vector<PackRules> dispatch_rules;  ///< of the replicas
    std::vector<PackRules> rules;           ///< in which they pack
    std::vector<SharedAdapter> shared;      ///< by AdapterId, where there are several
    std::int32_t per_block;
    std::optional<StreamEvaluations> evaluations;
    PackedBlocks* known_blocks;  ///< or null
    FillingCounts fillings;
    SampleOrders orders;
    std::vector<BatchSource> sources;
    StreamChecker checker;
    bool begun = false;
    std::int32_t batches = 0;
};

/// The next round's batches, noted.
Round ScheduleStream::State::take_round(std::vector<BatchPlan>& noted) {
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
        const auto& weights = datasets[index(job.adapters[a].dataset)].train_weights;
        FileDenominators files(samples_of_files(plan.adapters[a], false));
        for (const SampleRef& sample : pending.samples) {
            const double weight = target_weight(weights, sample.index, sample.targets);
            batch.tokens += sample.tokens;
            batch.targets += sample.targets;
            batch.target_weight += weight;
            files.add(sample.index, weight);
            if (is_chosen(job.adapters[a].loss, sample.index))
                batch.chosen_targets += sample.targets;
        }
        batch.samples = static_cast<std::int32_t>(pending.samples.size());
        batch.denominator = loss_denominator(job.adapters[a].loss, batch);
        batch.file_denominators = files.of(job.adapters[a].loss);
        batch.first_microbatch = batch.last_microbatch = MicrobatchId{-1};
        noted.push_back(batch);
        round.push_back(std::move(pending));
        ++progress.steps[a];
    }
    ++progress.round;
    return round;
}

/// By costs built in, so that packings repeat.
SharedAdapter ScheduleStream::State::shared_adapter(std::size_t a) const {
    SharedAdapter adapter;
    adapter.tokens = mean_step_tokens(job, plan, datasets, a);
    const auto id = static_cast<AdapterId>(a);
    for (const auto& replica : replicas) {
        for (const StagePlan& stage : replica->rules.stages) {
            const std::int64_t parameters = adapter_parameters(
                job.adapter(id), replica->view.lane_model, layers_of(stage, id).count);
            adapter.exchange_seconds =
                std::max(adapter.exchange_seconds,
                         exchange_seconds(replica->rules.costs, static_cast<double>(parameters)));
        }
    }
    return adapter;
}

/// What each replica computes of a block.
std::vector<std::vector<Microbatch>> ScheduleStream::State::pack(const std::vector<Round>& block,
                                                                 JointWindow& joint) {
    std::vector<std::vector<Microbatch>> microbatches(replicas.size());
    if (replicas.size() == 1) {
        microbatches.front() = packed_block(block);
        return microbatches;
    }
    std::int32_t number = progress.round - static_cast<std::int32_t>(block.size());
    for (const Round& round : block) {
        std::vector<std::vector<Microbatch>> more = pack_joint(round, number++, joint);
        for (std::size_t r = 0; r < more.size(); ++r) {
            std::move(more[r].begin(), more[r].end(), std::back_inserter(microbatches[r]));
        }
    }
    return microbatches;
}

/// Of one replica; the block's rounds have been taken.
std::vector<Microbatch> ScheduleStream::State::packed_block(const std::vector<Round>& block) {
    if (known_blocks == nullptr) return pack_microbatches(rules.front(), block, &fillings);
    const auto rounds = static_cast<std::int32_t>(block.size());
    const auto [known, fresh] = known_blocks->blocks.try_emplace({progress.round - rounds, rounds});
    if (fresh) known->second = pack_microbatches(rules.front(), block, &fillings);
    return known->second;
}

PackedShares ScheduleStream::State::packed_round(const Round& round, std::int32_t number) {
    const auto pack = [&] {
        return pack_shares(rules, dispatch(dispatch_rules, round, job.parallel.dispatch), shared);
    };
    if (known_blocks == nullptr) return pack();
    const auto [known, fresh] = known_blocks->rounds.try_emplace(number);
    if (fresh) known->second = pack();
    return known->second;
}

/// Notes the order in which the round's batches are reduced.
std::vector<std::vector<Microbatch>> ScheduleStream::State::pack_joint(const Round& round,
                                                                       std::int32_t number,
                                                                       JointWindow& joint) {
    PackedShares packed = packed_round(round, number);
    const Window& window = joint.common();
    for (const AdapterId adapter : packed.ends) {
        const auto batch =
            std::find_if(window.batches.rbegin(), window.batches.rend(),
                         [&](const BatchPlan& one) { return one.adapter == adapter; });
        joint.reductions.push_back(window.first_batch +
                                   static_cast<std::int32_t>(window.batches.rend() - batch) - 1);
    }
    fillings.add(packed.fillings);
    return std::move(packed.replicas);
}

void ScheduleStream::State::add_block(std::int32_t rounds, JointWindow& joint) {
    const std::size_t first_batch = joint.common().batches.size();
    std::vector<Round> block;
    block.reserve(static_cast<std::size_t>(rounds));
    std::vector<BatchPlan> noted;
    for (std::int32_t r = 0; r < rounds; ++r) block.push_back(take_round(noted));
    for (Window& window : joint.replicas) {
        window.rounds += rounds;
        window.batches.insert(window.batches.end(), noted.begin(), noted.end());
    }
    std::vector<std::vector<Microbatch>> packed = pack(block, joint);
    for (std::size_t r = 0; r < replicas.size(); ++r) {
        append_microbatches(job, replicas[r]->view, first_batch, std::move(packed[r]),
                            joint.replicas[r]);
    }
    settle_batches(joint, first_batch);
    if (evaluations) evaluations->evaluate_behind_block(first_batch, joint);
}

/// From the rows that batches take in each replica to the padding of all.
void ScheduleStream::State::settle_batches(JointWindow& joint, std::size_t first_batch) const {
    for (std::size_t b = first_batch; b < joint.common().batches.size(); ++b) {
        std::int64_t rows = 0;
        for (const Window& window : joint.replicas) rows += window.batches[b].padding;
        for (Window& window : joint.replicas) {
            window.batches[b].padding = rows - window.batches[b].tokens;
        }
    }
}

void ScheduleStream::State::add_blocks(std::int32_t rounds, bool cut_block, JointWindow& joint) {
    if (evaluations) evaluations->begin_window(joint);
    while (joint.common().rounds < rounds) {
        const std::int32_t block = block_end(progress.round);
        if (block == 0) break;
        const std::int32_t left = rounds - joint.common().rounds;
        add_block(cut_block ? std::min(block, left) : block, joint);
        if (evaluations) evaluations->evaluate_going(joint);
    }
}

void ScheduleStream::State::add_actions(JointWindow& joint) {
    std::vector<std::int32_t> awaited(joint.replicas.size(), 0);
    if (evaluations) awaited = evaluations->end_window(joint);
    const bool awaits = std::any_of(awaited.begin(), awaited.end(), [](auto f) { return f > 0; });
    for (std::size_t r = 0; r < joint.replicas.size(); ++r) {
        Window& window = joint.replicas[r];
        replicas[r]->microbatches += static_cast<std::int32_t>(window.microbatches.size());
        replicas[r]->actions.add_to(window, joint.reductions, awaited[r], awaits);
    }
}

ScheduleStream::ScheduleStream(const Job& job, const Plan& plan,
                               std::span<const DatasetInfo> datasets, const Progress& start,
                               int threads, Evaluations evaluations, PackedBlocks* packed)
    : state_(new State(job, plan, datasets, start, threads, evaluations, packed)) {}
ScheduleStream::~ScheduleStream() = default;

JointWindow ScheduleStream::next(std::int32_t rounds, bool drain, bool cut_block) {
    State& state = *state_;
    JointWindow joint;
    const bool begins = !std::exchange(state.begun, true);
    for (const auto& replica : state.replicas) {
        Window& window = joint.replicas.emplace_back();
        window.first_round = state.progress.round;
        window.begins = begins;
        window.drains = drain;
        window.first_batch = state.batches;
        window.first_microbatch = replica->microbatches;
    }
    LORATRAIN_CHECK(rounds > 0 || !state.evaluations || !state.evaluations->any_come_or_go(),
                    "adapters come or go, and no rounds follow");
    state.add_blocks(rounds, cut_block, joint);
    state.batches += static_cast<std::int32_t>(joint.common().batches.size());
    state.add_actions(joint);
    const std::vector<std::string> findings = state.checker.check(joint);
    if (!findings.empty()) {
        throw Error("the planned window is not valid:\n  " + join(findings, "\n  "));
    }
    return joint;
}

void ScheduleStream::begin(AdapterId adapter, bool is_evaluated) {
    State& state = *state_;
    const std::size_t a = index(adapter);
    LORATRAIN_CHECK(state.progress.steps[a] < state.plan.adapters[a].total_steps, "adapter ", a,
                    " has no steps left");
    state.progress.stopped[a] = false;
    const bool evaluates = !is_evaluated && state.progress.steps[a] == 0;
    if (evaluates && state.evaluations) state.evaluations->add_coming(adapter);
}

void ScheduleStream::end(AdapterId adapter) {
    State& state = *state_;
    pause(adapter);
    if (all_are_evaluated(state.job, state.progress.round)) return;
    if (state.evaluations) state.evaluations->add_going(adapter);
}

void ScheduleStream::pause(AdapterId adapter) {
    State& state = *state_;
    const std::size_t a = index(adapter);
    LORATRAIN_CHECK(state.trains(a), "adapter ", a, " does not train");
    state.progress.stopped[a] = true;
    for (const auto& replica : state.replicas) replica->actions.end(adapter);
}

void ScheduleStream::stop_at(const Progress& stops) {
    state_->progress.stops = stops.stops;
    state_->progress.rungs = stops.rungs;
}

void ScheduleStream::await(std::vector<AdapterId> adapters) {
    if (state_->evaluations) state_->evaluations->await(std::move(adapters));
}

void ScheduleStream::grow(std::span<const DatasetInfo> datasets) {
    State& state = *state_;
    LORATRAIN_CHECK(state.known_blocks == nullptr, "a stream that shares its blocks cannot grow");
    state.datasets = datasets;
    for (std::size_t a = state.progress.steps.size(); a < state.plan.adapters.size(); ++a) {
        state.progress.steps.push_back(0);
        state.progress.stopped.push_back(true);
        if (!state.progress.stops.empty()) {
            state.progress.stops.push_back(state.plan.adapters[a].total_steps);
        }
        if (!state.progress.rungs.empty()) state.progress.rungs.push_back(0);
    }
    state.per_block = rounds_per_block(state.job, state.plan, datasets);
    state.take_adapters();
}

const Progress& ScheduleStream::progress() const {
    return state_->progress;
}

const FillingCounts& ScheduleStream::fillings() const {
    return state_->fillings;
}

std::size_t ScheduleStream::size() const {
    std::size_t size = state_->checker.size();
    for (const auto& replica : state_->replicas) size += replica->actions.size();
    return size;
}

}  // namespace loratrain
