#include "unit/train/fake_ranks.h"

#include <algorithm>

#include "adapter/adapter_layout.h"
#include "base/error.h"
#include "plan/place.h"
#include "plan/stage_layers.h"
#include "train/checkpoint/adapter_transfer.h"
#include "train/checkpoint/stored_adapter.h"

namespace loratrain::test {

namespace {

template <class... Functions>
struct PerKind : Functions... {
    using Functions::operator()...;
};
template <class... Functions>  // clang 16 does not find it by itself
PerKind(Functions...)->PerKind<Functions...>;

std::string line_of(const char* kind, const std::vector<AdapterId>& adapters) {
    std::string line = kind;
    for (const AdapterId adapter : adapters) line += cat(" ", number(adapter));
    return line;
}

/// The kind of the command and its numbers.
std::string line_of(const WorkerCommand& command) {
    return std::visit(
        PerKind{
            [](const TrainWindow&) { return line_of("train", {}); },
            [](const ReferWindow&) { return line_of("refer", {}); },
            [](const KnownReferences& known) { return line_of("known", {known.adapter}); },
            [](const SendAdapter& send) { return line_of("send", {send.adapter}); },
            [](const CopyStates& copy) { return line_of("copy", copy.adapters); },
            [](const KeepParameters&) { return line_of("keep", {}); },
            [](const AdmitAdapters& admit) { return line_of("admit", admit.adapters); },
            [](const ReleaseAdapter& release) { return line_of("release", {release.adapter}); },
            [](const LoadAdapter& load) { return line_of("load", {load.adapter}); },
            [](const CheckAdditions&) { return line_of("check", {}); },
            [](const TakeAddition&) { return line_of("take", {}); },
            [](const DropAdditions&) { return line_of("drop", {}); },
            [](const AddSamples& add) { return cat("add ", add.first); },
            [](const GenerateTexts& generate) { return line_of("generate", {generate.adapter}); },
            [](const WriteTexts& write) { return cat("write ", write.orders.size()); },
            [](const Finish& finish) {
                return cat("finish ", static_cast<int>(finish.code), " ", finish.goes_on ? 1 : 0);
            }},
        command);
}

/// Of a step (Job::has_step_details).
EvalResult details_of(std::size_t replica, const BatchPlan& batch) {
    EvalResult details;
    details.adapter = batch.adapter;
    details.step = batch.step + 1;
    details.denominator = batch.denominator;
    details.replica = static_cast<std::int32_t>(replica);
    details.training = true;
    return details;
}

const StagePlan& planned_stage(const Plan& plan, int rank) {
    const RankPlace place = place_of(plan, rank);
    return plan.replicas[place.replica].stages[place.stage];
}

}  // namespace

FakeRanks::FakeRanks(const Job& job, const Plan& plan) : job_(job), plan_(plan) {
    for (const ReplicaPlan& replica : plan.replicas) {
        ranks_ += static_cast<int>(replica.stages.size()) * replica.tensor;
    }
    for (const AdapterId a : plan.first_admitted) residences_[a] = Residence::resident;
}

void FakeRanks::write(const std::string& line) {
    log_.push_back(line);
    if (on_order) on_order(line);
}

// ---- what a test reads

std::optional<std::size_t> FakeRanks::find(const std::string& line, std::size_t from) const {
    for (std::size_t i = from; i < log_.size(); ++i) {
        if (log_[i] == line) return i;
    }
    return std::nullopt;
}

std::size_t FakeRanks::count(const std::string& line) const {
    return static_cast<std::size_t>(std::count(log_.begin(), log_.end(), line));
}

bool FakeRanks::is_in_stream(const std::string& line) const {
    const std::optional<std::size_t> at = find(line);
    for (std::size_t i = at.value_or(log_.size()); i < log_.size(); ++i) {
        if (log_[i].starts_with("begin")) return false;
        if (log_[i].starts_with("window")) return true;
    }
    return false;
}

std::vector<AdapterId> FakeRanks::trained_in(std::int32_t round) const {
    const auto found = rounds_.find(round);
    if (found == rounds_.end()) return {};
    return {found->second.begin(), found->second.end()};
}

std::vector<std::int32_t> FakeRanks::rounds_of(AdapterId adapter) const {
    std::vector<std::int32_t> rounds;
    for (const auto& [round, adapters] : rounds_) {
        if (adapters.contains(adapter)) rounds.push_back(round);
    }
    return rounds;
}

std::size_t FakeRanks::resident() const {
    return static_cast<std::size_t>(
        std::count_if(residences_.begin(), residences_.end(),
                      [](const auto& entry) { return entry.second == Residence::resident; }));
}

Residence FakeRanks::residence(AdapterId adapter) const {
    const auto found = residences_.find(adapter);
    return found == residences_.end() ? Residence::absent : found->second;
}

std::int32_t FakeRanks::steps_on(int rank, AdapterId adapter) const {
    const auto found = steps_.find({rank, adapter});
    return found == steps_.end() ? 0 : found->second;
}

bool FakeRanks::is_first_replica(int rank) const {
    return place_of(plan_, rank).replica == 0;
}

bool FakeRanks::is_under_way(AdapterId adapter) const {
    for (const auto& [rank, batches] : open_) {
        for (const std::int32_t b : batches) {
            if (batches_.at(b).adapter == adapter) return true;
        }
    }
    return false;
}

// ---- commands

void FakeRanks::order(const WorkerCommand& command) {
    write(line_of(command));
    ordered_.push_back({command, windows_ordered_});
}

void FakeRanks::perform_ordered() {
    while (!ordered_.empty() && ordered_.front().windows <= windows_trained_) {
        const WorkerCommand command = std::move(ordered_.front().command);
        ordered_.pop_front();
        perform(command);
    }
}

void FakeRanks::perform(const WorkerCommand& command) {
    std::visit(PerKind{
                   [&](const SendAdapter& c) {
                       EXPECT_FALSE(is_under_way(c.adapter)) << line_of(command);
                       send_all({c.adapter});
                   },
                   [&](const CopyStates& c) {
                       for (const AdapterId a : c.adapters) {
                           for (const StoredPart& stored : stored_parts) {
                               want({a, stored.part, PartUse::checkpoint});
                           }
                       }
                   },
                   [&](const KeepParameters& c) {
                       for (const auto& [adapter, step] : c.adapters) {
                           want({adapter, StatePart::parameters, PartUse::kept, step});
                       }
                   },
                   [&](const AdmitAdapters& c) { admit(c.adapters); },
                   [&](const ReleaseAdapter& c) { release(c.adapter); },
                   [&](const LoadAdapter& c) { load(c.adapter, c.directory); },
                   [&](const CheckAdditions& c) { check(c.files); },
                   [&](const TakeAddition&) { take(); },
                   [&](const DropAdditions&) { additions_.clear(); },
                   [](const auto&) {},
               },
               command);
}

void FakeRanks::admit(const std::vector<AdapterId>& adapters) {
    for (auto& [adapter, residence] : residences_) {
        const bool stays = std::find(adapters.begin(), adapters.end(), adapter) != adapters.end();
        if (stays || residence != Residence::resident) continue;
        EXPECT_FALSE(is_under_way(adapter)) << number(adapter) << " is suspended";
        residence = Residence::suspended;
    }
    for (const AdapterId a : adapters) {
        EXPECT_NE(residence(a), Residence::released) << number(a) << " comes back";
        residences_[a] = Residence::resident;
    }
}

void FakeRanks::release(AdapterId adapter) {
    EXPECT_FALSE(is_under_way(adapter)) << number(adapter) << " is released";
    EXPECT_TRUE(residence(adapter) == Residence::resident ||
                residence(adapter) == Residence::suspended)
        << number(adapter) << " is released again";
    for (const auto& [rank, wanted] : wanted_) {
        for (const Wanted& w : wanted) EXPECT_NE(w.key.adapter, adapter) << "released uncopied";
    }
    residences_[adapter] = job_.parallel.by_workers() ? Residence::absent : Residence::released;
}

/// A file of FakeRanks: its values say the step.
void FakeRanks::load(AdapterId adapter, const std::string& directory) {
    EXPECT_EQ(residence(adapter), Residence::absent);
    const AdapterJob& job = job_.adapter(adapter);
    const auto tensors =
        stored_parameters(directory + "/" + stored_adapter_name(job), job, plan_.model);
    const auto steps = static_cast<std::int32_t>(tensors.front().values.front());
    for (int rank = 0; rank < ranks_; ++rank) steps_[{rank, adapter}] = steps;
    residences_[adapter] = Residence::suspended;
}

void FakeRanks::check(const std::vector<InboxFile>& files) {
    additions_.clear();
    for (int rank = 0; rank < ranks_; ++rank) {
        AdditionsReport report;
        for (const InboxFile& file : files) {
            report.problems.push_back(problem_of ? problem_of(rank, file) : "");
            if (rank == 0 && report.problems.back().empty()) additions_.push_back(file);
        }
        reports_.push_back({report, 0});
    }
}

void FakeRanks::take() {
    ASSERT_FALSE(additions_.empty());
    grow(additions_.front());
    additions_.pop_front();
}

// ---- parts of adapters

void FakeRanks::send_all(const PartKey& key) {
    for (int rank = 0; rank < ranks_; ++rank) send(rank, key);
}

/// Of the first replica's ranks, with the steps that the windows so far have.
void FakeRanks::want(const PartKey& key) {
    for (int rank = 0; rank < ranks_; ++rank) {
        if (!is_first_replica(rank)) continue;
        std::optional<std::int32_t> last;
        for (const std::int32_t b : open_[rank]) {
            if (batches_.at(b).adapter == key.adapter) last = batches_.at(b).step;
        }
        if (last) {
            wanted_[rank].push_back({key, *last});
        } else {
            send(rank, key);
        }
    }
}

void FakeRanks::send(int rank, const PartKey& key) {
    EXPECT_TRUE(residence(key.adapter) == Residence::resident ||
                residence(key.adapter) == Residence::suspended)
        << number(key.adapter) << " is sent";
    const StagePlan& stage = planned_stage(plan_, rank);
    const RankPlace place = place_of(plan_, rank);
    const TensorLane lane{place.lane, plan_.replicas[place.replica].tensor};
    const AdapterLayout layout(job_.adapter(key.adapter), plan_.model,
                               state_layers(stage, key.adapter), lane);
    const std::int32_t steps = steps_on(rank, key.adapter);
    if (key.use == PartUse::kept) {
        EXPECT_EQ(steps, key.step) << "kept too late";
    }
    if (key.use == PartUse::checkpoint) counters_[key.adapter] = {steps, 0};
    std::vector<float> values(static_cast<std::size_t>(layout.count(key.part)),
                              static_cast<float>(steps));
    const bool waits = reports_.empty() || !parts_together;
    reports_.push_back({whole_piece(key, rank, std::move(values)), waits ? looks_for_parts : 0});
}

std::optional<Report> FakeRanks::report() {
    if (reports_.empty() || --reports_.front().looks >= 0) return std::nullopt;
    Report report = std::move(reports_.front().report);
    reports_.pop_front();
    return report;
}

AdapterBank::Counters FakeRanks::copied_counters(AdapterId adapter) const {
    return counters_.at(adapter);
}

std::vector<NamedTensor> FakeRanks::join(AdapterId adapter, const AdapterParts::ByRank& all) const {
    return join_values(job_, plan_, adapter, StatePart::parameters,
                       [&](std::int32_t rank) { return std::span<const float>(all.at(rank)); });
}

ReferenceValues FakeRanks::references(const ReferenceId& /*reference*/) const {
    return {};
}

std::vector<GeneratedText> FakeRanks::generate(AdapterId adapter) {
    perform_ordered();
    write(line_of(GenerateTexts{adapter}));
    EXPECT_EQ(residence(adapter), Residence::resident) << "texts of " << number(adapter);
    return {{{0, {1, 2}, {3}}, {steps(adapter)}, false}};
}

std::vector<GeneratedText> FakeRanks::write_texts(const std::vector<TextOrder>& orders) {
    perform_ordered();
    write(line_of(WriteTexts{orders}));
    std::vector<GeneratedText> texts;
    for (const TextOrder& order : orders) {
        EXPECT_EQ(residence(order.adapter), Residence::resident);
        const auto member = static_cast<std::int32_t>(order.draw.member);
        texts.push_back({order.prompt, {member, member}, false, {-1.0F, -1.0F}});
    }
    return texts;
}

// ---- windows

void FakeRanks::order_window(const PlannedWindow& window) {
    const Window& common = window.window.common();
    write((common.begins ? "begin " : "window ") + std::to_string(common.first_round) + "+" +
          std::to_string(common.rounds));
    ++windows_ordered_;
}

void FakeRanks::note_batches(const JointWindow& window) {
    const Window& common = window.common();
    if (common.begins) {
        for (const auto& [rank, batches] : open_) EXPECT_TRUE(batches.empty()) << "not drained";
        EXPECT_TRUE(evaluations_.empty());
        batches_.clear();
        const bool trains = std::any_of(common.batches.begin(), common.batches.end(),
                                        [](const BatchPlan& batch) { return !batch.evaluation; });
        if (trains) ++streams_;
    }
    std::int32_t number_of_batch = common.first_batch;
    for (std::size_t i = 0; i < common.batches.size(); ++i) {
        const std::int32_t b = number_of_batch++;
        const BatchPlan& batch = common.batches[i];
        EXPECT_EQ(residence(batch.adapter), Residence::resident)
            << number(batch.adapter) << " is in a window";
        batches_[b] = batch;
        if (!batch.evaluation) {
            for (int rank = 0; rank < ranks_; ++rank) open_[rank].insert(b);
        }
        if (!batch.evaluation && !job_.has_step_details(batch.adapter)) continue;
        for (std::size_t r = 0; r < window.replicas.size(); ++r) {
            const BatchPlan& here = window.replicas[r].batches[i];
            if (here.is_here()) evaluations_[{r, here.last_microbatch}].push_back(here);
        }
    }
}

void FakeRanks::train(const JointWindow& window, const PipelineRunner::Hooks& hooks) {
    ASSERT_LT(windows_trained_, windows_ordered_) << "a window that was not ordered";
    ASSERT_TRUE(ordered_.empty() || ordered_.front().windows > windows_trained_)
        << "a window trains before what was ordered";
    ++windows_trained_;
    note_batches(window);
    std::size_t most = 0;
    for (const Window& replica : window.replicas) {
        for (const auto& actions : replica.actions) most = std::max(most, actions.size());
    }
    for (std::size_t i = 0; i < most; ++i) {
        for (std::size_t r = 0; r < window.replicas.size(); ++r) {
            const Window& replica = window.replicas[r];
            for (std::size_t s = 0; s < replica.actions.size(); ++s) {
                if (i < replica.actions[s].size()) act(window, r, s, replica.actions[s][i], hooks);
            }
        }
        if (hooks.between_actions) hooks.between_actions();
    }
}

void FakeRanks::act(const JointWindow& window, std::size_t replica, std::size_t stage,
                    const Action& action, const PipelineRunner::Hooks& hooks) {
    const std::size_t last = window.replicas[replica].actions.size() - 1;
    if (action.kind == ActionKind::step) step(replica, stage, action.batch, hooks);
    if (action.kind == ActionKind::forward && stage == last) {
        evaluate(replica, action.microbatch, hooks);
    }
}

void FakeRanks::step(std::size_t replica, std::size_t stage, std::int32_t b,
                     const PipelineRunner::Hooks& hooks) {
    const BatchPlan& batch = batches_.at(b);
    const bool tells = replica == 0 && stage == 0;
    if (tells && before_step) before_step(batch);
    const ReplicaPlan& plan = plan_.replicas[replica];
    for (std::int32_t lane = 0; lane < plan.tensor; ++lane) {
        const int rank = plan.stages[stage].rank + lane;
        EXPECT_EQ(steps_on(rank, batch.adapter), batch.step) << number(batch.adapter);
        steps_[{rank, batch.adapter}] = batch.step + 1;
        open_[rank].erase(b);
        std::erase_if(wanted_[rank], [&](const Wanted& wanted) {
            const bool now = wanted.key.adapter == batch.adapter && wanted.step == batch.step;
            if (now) send(rank, wanted.key);
            return now;
        });
    }
    if (!tells) return;
    rounds_[batch.round].insert(batch.adapter);
    const std::int32_t step = batch.step + 1;
    hooks.on_batch(
        {batch, loss(batch.adapter, step) * batch.denominator, grad_sumsq(batch.adapter, step)});
}

void FakeRanks::evaluate(std::size_t replica, MicrobatchId microbatch,
                         const PipelineRunner::Hooks& hooks) {
    const auto found = evaluations_.find({replica, microbatch});
    if (found == evaluations_.end()) return;
    const std::vector<BatchPlan> batches = std::move(found->second);
    evaluations_.erase(found);
    for (const BatchPlan& batch : batches) {
        const int rank = plan_.replicas[replica].stages.back().rank;
        const std::int32_t now = steps_on(rank, batch.adapter);
        if (batch.evaluation && replica == 0) evaluated_.push_back({batch.adapter, now});
        const EvalResult result =
            batch.evaluation ? result_of(replica, batch) : details_of(replica, batch);
        const bool own = plan_.replicas[replica].stages.back().rank == 0;
        if (own && !looks_for_results) {
            hooks.on_evaluation(result);
            continue;
        }
        const Waiting waiting{std::vector<EvalResult>{result}, looks_for_results.value_or(0)};
        if (results_reversed) {
            reports_.push_front(waiting);
        } else {
            reports_.push_back(waiting);
        }
    }
}

/// All of its loss is the first replica's.
EvalResult FakeRanks::result_of(std::size_t replica, const BatchPlan& batch) const {
    EvalResult result;
    result.adapter = batch.adapter;
    result.step = batch.step;
    result.denominator = batch.denominator;
    result.replica = static_cast<std::int32_t>(replica);
    result.samples = replica == 0 ? batch.samples : 0;
    const int rank = plan_.replicas[replica].stages.back().rank;
    const std::int32_t now = steps_on(rank, batch.adapter);
    // Between streams windows say 0.
    EXPECT_TRUE(now == batch.step || batch.step == 0) << number(batch.adapter) << " at " << now;
    if (replica == 0) result.loss_sum = eval_loss(batch.adapter, now) * batch.denominator;
    return result;
}

}  // namespace loratrain::test
