#include "train/services/rollouts.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <iterator>
#include <stdexcept>
#include <thread>
#include <utility>

#include "base/activity.h"
#include "base/error.h"
#include "base/log.h"
#include "base/rng.h"
#include "base/system.h"
#include "base/text.h"
#include "io/files.h"
#include "plan/memory/memory_model.h"
#include "plan/pack/sample_order.h"
#include "plan/schedule/admission_rules.h"
#include "train/services/services.h"
#include "train/services/stops.h"

namespace loratrain {

namespace {

constexpr std::chrono::milliseconds between_polls{2};
constexpr std::chrono::seconds others_wait{1};  // for the answers to new questions
constexpr const char* random_stream = "rollouts";

}  // namespace

RolloutService::RolloutService(Worker& worker) : worker_(worker) {
    for (const AdapterId a : worker_.adapters.all()) {
        if (worker_.job(a).rewards.wanted()) own_.push_back(a);
    }
}

// ---- who has to write

bool RolloutService::lacks_batch(AdapterId adapter, std::int32_t steps) const {
    std::error_code unknown;
    return is_unfinished(worker_.state(adapter).status) && steps < worker_.total_steps(adapter) &&
           !worker_.adapters.has_batch(adapter, steps) && !asked_.contains(adapter) &&
           !std::filesystem::exists(rollout_path(folder_of(adapter), steps), unknown);
}

bool RolloutService::needs_drain(std::int32_t round) {
    return !failed_.empty() || std::any_of(own_.begin(), own_.end(), [&](AdapterId a) {
        const bool planned = worker_.adapters[a].stream.joined();
        return lacks_batch(
            a, planned ? worker_.adapters.steps_before(a, round) : worker_.state(a).steps);
    });
}

std::vector<AdapterId> RolloutService::writers() const {
    std::vector<AdapterId> adapters = own_;
    std::erase_if(adapters,
                  [this](AdapterId a) { return !lacks_batch(a, worker_.state(a).steps); });
    return adapters;
}

// ---- texts, with an empty pipeline

void RolloutService::write() {
    let_fail();
    std::vector<AdapterId> left = writers();
    while (!left.empty() && worker_.reason_to_stop().empty()) {
        std::vector<AdapterClaim> claims = worker_.adapters.claims();
        for (AdapterClaim& claim : claims) claim.unfinished = false;
        for (const AdapterId a : left) claims[index(a)] = {true, worker_.state(a).steps > 0, 0};
        const std::vector<AdapterId> together =
            loratrain::admit(worker_.parts.job, worker_.parts.plan, claims);
        LORATRAIN_CHECK(!together.empty(), "no adapter fits that has to write");
        write_together(together);
        std::erase_if(left, [&](AdapterId a) {
            return std::find(together.begin(), together.end(), a) != together.end();
        });
    }
    wait_for_answers();
}

void RolloutService::write_together(const std::vector<AdapterId>& adapters) {
    const auto start = Clock::now();
    worker_.services->admission.hold(adapters);
    std::vector<TextOrder> orders;
    for (const AdapterId a : adapters) {
        std::vector<TextOrder> own = orders_of(a);
        std::move(own.begin(), own.end(), std::back_inserter(orders));
    }
    std::vector<GeneratedText> texts = worker_.ranks.write_texts(orders);
    const double seconds = seconds_since(start);
    worker_.parts.stop.window_took(seconds);  // a stop waits so long for its end
    for (std::size_t first = 0; first < orders.size();) {
        const AdapterId adapter = orders[first].adapter;
        std::vector<GeneratedText> own;
        for (; first < orders.size() && orders[first].adapter == adapter; ++first) {
            own.push_back(std::move(texts[first]));
        }
        ask(adapter, std::move(own), seconds);
    }
}

/// Whole groups of the next prompts, in the adapter's own order of an epoch, which it takes as
/// often as it needs; prompts that are too few for a batch are left out of an epoch.
std::vector<TextOrder> RolloutService::orders_of(AdapterId adapter) {
    const AdapterJob& job = worker_.job(adapter);
    const RewardsJob& rewards = job.rewards;
    const Dataset& prompts = worker_.parts.files.train.at(index(*rewards.prompts));
    const DatasetJob& dataset = worker_.parts.job.dataset(*rewards.prompts);
    const std::int64_t count = prompt_count(prompts);
    const std::int32_t step = worker_.state(adapter).steps;
    const std::int32_t of_batch = job.global_batch_size / rewards.group_size;
    const auto batches = static_cast<std::int32_t>(count / of_batch);
    const std::vector<std::int32_t> order =
        epoch_order(job.seed, dataset.name, step / batches, count, dataset.shuffle);
    const std::uint64_t key = tensor_key(job.seed, job.name, random_stream);
    const std::int64_t most = worker_.parts.job.dataset(job.dataset).max_seq_len;
    std::vector<TextOrder> orders;
    for (std::int32_t p = 0; p < of_batch; ++p) {
        const auto place = static_cast<std::size_t>(step % batches * of_batch + p);
        const Prompt prompt = read_prompt(prompts, order[place]);
        if (prompt.tokens.empty() || std::ssize(prompt.tokens) + rewards.max_new_tokens > most) {
            throw Error(cat("sample ", prompt.sample, " of dataset ", dataset.name,
                            " was changed after it had been opened: its prompt has ",
                            prompt.tokens.size(), " tokens now"));
        }
        for (std::int32_t member = 0; member < rewards.group_size; ++member) {
            Draw draw{rewards.temperature, rewards.top_p, key};
            draw.step = static_cast<std::uint32_t>(step);
            draw.prompt = static_cast<std::uint32_t>(prompt.sample);
            draw.member = static_cast<std::uint32_t>(member);
            orders.push_back({adapter, prompt, rewards.max_new_tokens,
                              worker_.parts.base.stop_tokens_with(rewards.stop_tokens), draw});
        }
    }
    return orders;
}

// ---- rewards

RewardProgram& RolloutService::program_of(AdapterId adapter) {
    const std::string& command = worker_.job(adapter).rewards.program;
    std::unique_ptr<RewardProgram>& program = programs_[command];
    const std::string folder = std::filesystem::path(worker_.parts.job.path).parent_path().string();
    if (!program) program = std::make_unique<RewardProgram>(command, folder);
    return *program;
}

void RolloutService::ask(AdapterId adapter, std::vector<GeneratedText> texts,
                         double sample_seconds) {
    const std::int32_t step = worker_.state(adapter).steps;
    const AdapterJob& job = worker_.job(adapter);
    const DatasetJob& dataset = worker_.parts.job.dataset(*job.rewards.prompts);
    std::vector<std::string> questions;
    for (const GeneratedText& text : texts) {
        if (text.tokens.empty()) {
            return fail_adapter(worker_, adapter,
                                cat("the prompt of sample ", text.prompt.sample,
                                    " leaves no place for a text in the model's positions"));
        }
        const auto is_finite = [](float logprob) { return std::isfinite(logprob); };
        if (!std::all_of(text.logprobs.begin(), text.logprobs.end(), is_finite)) {
            return fail_adapter(worker_, adapter,
                                cat("logits of the texts of step ", step + 1, " are not finite"));
        }
        questions.push_back(
            question_of(text, dataset.tokenizer == Tokenizer::bytes, job.name, step));
    }
    RewardProgram& program = program_of(adapter);
    const RewardProgram::Ticket ticket = program.ask(std::move(questions), job.rewards.timeout);
    asked_[adapter] = {step, &program, ticket, std::move(texts), sample_seconds, Clock::now()};
}

void RolloutService::go_on() {
    if (asked_.empty() || Clock::now() < next_poll_) return;
    take_answers();
    next_poll_ = Clock::now() + between_polls;
}

void RolloutService::take_answers() {
    for (auto next = asked_.begin(); next != asked_.end();) {
        next->second.program->poll();
        const auto answers = next->second.program->take(next->second.ticket);
        if (!answers) {
            ++next;
            continue;
        }
        take(next->first, next->second, *answers);
        next = asked_.erase(next);
    }
}

/// In a stream adapters cannot fail: the next empty pipeline lets them.
void RolloutService::take(AdapterId adapter, const Asked& asked,
                          const RewardProgram::Answers& answers) {
    if (!is_unfinished(worker_.state(adapter).status)) return;
    if (!answers.problem.empty()) {
        failed_[adapter] = cat("step ", asked.step + 1, ": ", answers.problem);
        return;
    }
    std::vector<Rollout> rollouts;
    for (std::size_t i = 0; i < asked.texts.size(); ++i) {
        const RewardProgram::Answer& answer = answers.of_questions[i];
        rollouts.push_back({asked.texts[i], answer.reward, answer.parts});
    }
    const std::string& folder = folder_of(adapter);
    const RewardsJob& rewards = worker_.job(adapter).rewards;
    const std::string lines = to_text(rollouts, rewards, asked.step);
    try {
        write_text_atomic(rollout_path(folder, asked.step), lines);
    } catch (const std::runtime_error& error) {
        failed_[adapter] =
            cat("step ", asked.step + 1, ": its texts cannot be kept: ", error.what());
        return;
    }
    RolloutMeans means = *means_of(lines, rewards.group_size);
    means.sample_seconds = asked.sample_seconds;
    means.reward_seconds = seconds_since(asked.since);
    worker_.journal.note_rollouts(adapter, asked.step + 1, means);
    noted_[adapter] = asked.step + 1;
    worker_.services->arrivals.look_again();
}

void RolloutService::wait_for_answers() {
    if (asked_.empty()) return;
    activity::begin(activity::Task::plan);
    Clock::time_point end{};
    for (const auto& asked : asked_) end = std::max(end, asked.second.since + others_wait);
    take_answers();
    while (!asked_.empty() && Clock::now() < end && worker_.reason_to_stop().empty()) {
        std::this_thread::sleep_for(between_polls);
        activity::advance();
        worker_.ranks.progress();
        worker_.journal.beat();
        take_answers();
    }
    let_fail();
    worker_.services->arrivals.look_now();
}

/// Somebody may have stopped the adapter since.
void RolloutService::let_fail() {
    for (const auto& [adapter, why] : std::exchange(failed_, {})) {
        if (is_unfinished(worker_.state(adapter).status)) fail_adapter(worker_, adapter, why);
    }
}

// ---- files

const std::string& RolloutService::folder_of(AdapterId adapter) const {
    return worker_.parts.job.dataset(worker_.job(adapter).dataset).path;
}

/// Of steps that are to come; an earlier start has left some. What is no file of texts has no
/// means: ArrivalService says why it cannot be used.
void RolloutService::note_files() {
    for (const AdapterId a : own_) {
        if (!is_unfinished(worker_.state(a).status)) continue;
        std::int32_t& next = noted_[a];
        next = std::max(next, worker_.state(a).steps);
        std::error_code unknown;
        for (std::string path = rollout_path(folder_of(a), next);
             std::filesystem::exists(path, unknown); path = rollout_path(folder_of(a), ++next)) {
            const auto means = means_of(read_text(path), worker_.job(a).rewards.group_size);
            if (means) worker_.journal.note_rollouts(a, next + 1, *means);
        }
    }
}

}  // namespace loratrain
