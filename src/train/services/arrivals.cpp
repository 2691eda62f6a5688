#include "train/services/arrivals.h"

#include <algorithm>
#include <stdexcept>

#include "base/error.h"
#include "base/log.h"
#include "base/text.h"
#include "train/job_warnings.h"
#include "train/services/services.h"
#include "train/services/stops.h"

namespace loratrain {

namespace {

constexpr std::int32_t most_ahead = 16;  // batches that wait in memory, and their tokens
constexpr std::int64_t most_tokens_ahead = std::int64_t{4} << 20U;
constexpr std::chrono::milliseconds between_folder_looks{100};
constexpr int looks_share = 20;  // looks in vain take at most one in so many of rank 0's seconds
constexpr std::chrono::milliseconds longest_look{100};  // or one file: nothing else goes on
constexpr std::chrono::seconds until_told{5};

std::int64_t tokens_of(const Arrivals::Batch& batch) {
    std::int64_t tokens = 0;
    for (const SampleInfo& sample : batch.samples) tokens += sample.tokens;
    return tokens;
}

}  // namespace

Arrivals* ArrivalService::arrivals_of(AdapterId adapter) const {
    std::optional<Arrivals>& arrivals =
        worker_.parts.datasets[index(worker_.job(adapter).dataset)].arrivals;
    return arrivals ? &*arrivals : nullptr;
}

/// Adapters that may take more steps.
std::vector<AdapterId> ArrivalService::growing() const {
    std::vector<AdapterId> adapters = worker_.adapters.all();
    std::erase_if(adapters, [this](AdapterId a) {
        return arrivals_of(a) == nullptr || !is_unfinished(worker_.state(a).status);
    });
    return adapters;
}

ArrivalService::Source& ArrivalService::source_of(AdapterId adapter) {
    const auto known = sources_.find(adapter);
    if (known != sources_.end()) return known->second;
    const AdapterJob& job = worker_.job(adapter);
    const AdapterState& state = worker_.state(adapter);
    arrivals_of(adapter)->first_step = state.steps;
    RolloutFolder folder(
        {worker_.parts.job.dataset(job.dataset), worker_.parts.plan.model.vocab_size,
         job.global_batch_size, job.loss.max_staleness},
        {state.steps, state.file, state.file_batches});
    return sources_.emplace(adapter, Source{std::move(folder)}).first->second;
}

// ---- while the stream goes on

bool ArrivalService::waits(AdapterId adapter) const {
    const AdapterState& state = worker_.state(adapter);
    return state.status == AdapterStatus::waiting &&
           !worker_.adapters.has_batch(adapter, state.steps);
}

bool ArrivalService::is_over(AdapterId adapter) const {
    const auto source = sources_.find(adapter);
    if (source == sources_.end()) return false;
    const bool is_found = std::any_of(found_.begin(), found_.end(), [adapter](const auto& found) {
        return found.first == adapter;
    });
    return !is_found && (source->second.folder.is_over() || !source->second.problem.empty());
}

bool ArrivalService::looks_often() const {
    const std::vector<AdapterId> adapters = growing();
    return std::any_of(adapters.begin(), adapters.end(),
                       [this](AdapterId a) { return waits(a) && !is_over(a); });
}

bool ArrivalService::needs_drain(std::int32_t /*round*/) {
    const std::vector<AdapterId> adapters = growing();
    return std::any_of(adapters.begin(), adapters.end(),
                       [this](AdapterId a) { return waits(a) && is_over(a); });
}

void ArrivalService::on_step(const BatchResult& result) {
    const Arrivals* arrivals = arrivals_of(result.batch.adapter);
    if (arrivals == nullptr) return;
    const Arrivals::Batch& batch = arrivals->of(result.batch.step);
    AdapterState& state = worker_.adapters[result.batch.adapter].state;
    state.file = batch.ends_file ? batch.file + 1 : batch.file;
    state.file_batches = batch.ends_file ? 0 : batch.of_file + 1;
}

std::optional<std::int32_t> ArrivalService::stale_before(const BatchPlan& batch) const {
    const Arrivals* arrivals = arrivals_of(batch.adapter);
    const bool asked = worker_.job(batch.adapter).loss.max_staleness.has_value();
    if (arrivals == nullptr || !asked) return std::nullopt;
    return arrivals->of(batch.step).stale;
}

void ArrivalService::look() {
    const Clock::time_point begin = Clock::now();
    const std::vector<AdapterId> adapters = growing();
    if (adapters.empty() || begin < next_look_ || !found_.empty()) return;
    bool reads_on = false;
    Clock::duration in_vain{};
    for (const AdapterId a : adapters) {
        in_vain += look(a, begin + longest_look);
        reads_on = reads_on || source_of(a).folder.reads_on();
    }
    const Clock::time_point end = Clock::now();
    next_look_ = end + looks_share * in_vain;
    if (found_.empty() && !reads_on) next_look_ = std::max(next_look_, end + between_folder_looks);
}

/// Until the folder has no more, as much as is needed soon has come, or the time is over. Returns
/// how long it looked for what was not there.
ArrivalService::Clock::duration ArrivalService::look(AdapterId adapter, Clock::time_point until) {
    Source& source = source_of(adapter);
    const Arrivals& arrivals = *arrivals_of(adapter);
    const std::int32_t steps = worker_.state(adapter).steps;
    std::int64_t tokens = 0;
    for (std::int32_t s = steps; s < arrivals.steps(); ++s) tokens += tokens_of(arrivals.of(s));
    std::int32_t next = arrivals.steps();
    const std::int32_t last = std::min(steps + most_ahead, worker_.total_steps(adapter));
    Clock::duration in_vain{};
    while (source.problem.empty() && next < last && tokens < most_tokens_ahead) {
        const Clock::time_point begin = Clock::now();
        if (take_next(adapter, source)) {
            tokens += tokens_of(found_.back().second.info);
            ++next;
        } else if (!source.folder.reads_on()) {
            in_vain = Clock::now() - begin;
            break;
        }
        if (Clock::now() >= until) break;
    }
    tell(adapter, source);
    return in_vain;
}

bool ArrivalService::take_next(AdapterId adapter, Source& source) {
    std::optional<RolloutFolder::Batch> batch;
    try {
        batch = source.folder.next();
    } catch (const std::runtime_error& error) {  // InputError, Error, of a file system
        source.problem = error.what();
    }
    if (!batch) return false;
    if (!std::exchange(source.tokenizer_checked, true) && source.folder.file()) {
        std::vector<std::string> warnings;
        check_tokenizers(worker_.parts.job.dataset(worker_.job(adapter).dataset),
                         *source.folder.file(), worker_.parts.base.tokenizer, warnings);
        for (const std::string& warning : warnings) log::warn(warning);
    }
    source.since = Clock::now();
    source.waiting_told = false;
    found_.emplace_back(adapter, *std::move(batch));
    return true;
}

void ArrivalService::tell(AdapterId adapter, Source& source) const {
    const std::string name = cat("adapter ", worker_.job(adapter).name);
    for (const std::string& late : source.folder.take_late()) {
        log::warn(cat(name, " does not train on ", late,
                      ", which came after a file with a larger number"));
    }
    const std::string& trouble = source.folder.trouble();
    if (!std::exchange(source.trouble_told, !trouble.empty()) && !trouble.empty()) {
        log::warn(cat(name, ": ", trouble, "; it waits, and looks again"));
    }
    const bool is_stale = std::any_of(found_.begin(), found_.end(), [adapter](const auto& found) {
        return found.first == adapter && found.second.info.stale > 0;
    });
    if (is_stale && !std::exchange(source.stale_told, true)) {
        log::warn(cat(name, " leaves out rollouts that are more than ",
                      *worker_.job(adapter).loss.max_staleness,
                      " steps old; its metric stale_rollouts counts them"));
    }
    if (worker_.job(adapter).rewards.wanted()) return;  // nobody else has to act
    if (!waits(adapter) || is_over(adapter) || Clock::now() - source.since < until_told) return;
    if (!std::exchange(source.waiting_told, true)) {
        log::info(cat(name, " waits for ", source.folder.awaited()));
    }
}

bool ArrivalService::grow() {
    if (found_.empty()) return false;
    for (auto& [adapter, batch] : std::exchange(found_, {})) add(adapter, std::move(batch));
    worker_.ranks.perform_ordered();
    return true;
}

void ArrivalService::add(AdapterId adapter, RolloutFolder::Batch batch) {
    Arrivals& arrivals = *arrivals_of(adapter);
    const AdapterJob& job = worker_.job(adapter);
    const std::int32_t steps = worker_.state(adapter).steps;
    for (; arrivals.first_step < steps && !arrivals.batches.empty(); ++arrivals.first_step) {
        arrivals.batches.pop_front();
    }
    const std::int64_t size = job.global_batch_size;
    worker_.ranks.order(AddSamples{job.dataset, arrivals.steps() * size, std::move(batch.samples),
                                   arrivals.first_step * size});
    arrivals.batches.push_back(std::move(batch.info));
}

// ---- with an empty pipeline

void ArrivalService::look_now() {
    const bool others_train = !worker_.adapters.running().empty();
    if (!others_train) next_look_ = std::min(next_look_, Clock::now() + between_folder_looks);
    look();
    grow();
    for (const AdapterId a : growing()) {
        if (is_over(a) && !worker_.adapters.has_batch(a, worker_.state(a).steps)) end(a);
    }
}

/// It may go on in a later start, with what has come until then.
void ArrivalService::end(AdapterId adapter) {
    AdapterState& state = worker_.adapters[adapter].state;
    std::string why = sources_.at(adapter).problem;
    if (why.empty()) why = failure_reason(state, worker_.total_steps(adapter));
    if (!why.empty()) return fail_adapter(worker_, adapter, why);
    const std::string name = cat("adapter ", worker_.job(adapter).name);
    const std::int32_t left_out = sources_.at(adapter).folder.left_out();
    if (left_out > 0) {
        log::warn(cat(name, " leaves out ", left_out,
                      " rollouts that came after its last step and were too old"));
    }
    state.status = AdapterStatus::done;
    log::info(cat(name, " is done at step ", state.steps, ": its rollouts have ended"));
    if (state.steps > 0) worker_.services->exports.write_now(adapter);
}

}  // namespace loratrain
