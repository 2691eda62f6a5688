#include "train/job_warnings.h"

#include <algorithm>
#include <map>
#include <string_view>
#include <tuple>

#include "base/error.h"
#include "base/text.h"
#include "config/dead_rules.h"
#include "io/weights/hf_notes.h"
#include "plan/pack/batch_source.h"
#include "plan/pack/sample_order.h"
#include "plan/rungs.h"
#include "plan/sample_counts.h"
#include "train/learning_rate.h"

namespace loratrain {

namespace {

constexpr std::int64_t largest_byte_vocabulary = 512;
constexpr std::string_view digest_prefix = "xxh64:";
constexpr double jump_worth_telling = 1.1;
constexpr std::size_t most_named = 3;

void check_evaluations(const Job& job, std::vector<std::string>& warnings) {
    const bool has_data = std::any_of(job.datasets.begin(), job.datasets.end(),
                                      [](const DatasetJob& d) { return d.has_eval(); });
    if (job.eval.every_steps == 0 || has_data) return;
    warnings.push_back(
        "eval.every_steps is set, but no dataset has data to evaluate on: give one an eval_path, "
        "or hold samples out with eval: {split: 0.05}");
}

void check_warmups(const Job& job, const Plan& plan, std::size_t first,
                   std::vector<std::string>& warnings) {
    std::vector<std::string> names;
    for (std::size_t i = first; i < job.adapters.size(); ++i) {
        const AdapterJob& adapter = job.adapters[i];
        const int steps = plan.adapters[i].total_steps;
        if (warmup_steps(adapter, steps) < steps) continue;
        names.push_back(cat(adapter.name, " (", warmup_steps(adapter, steps), " of ", steps, ")"));
    }
    if (names.empty()) return;
    warnings.push_back(
        cat("warmup_steps take the whole training of ", some_of(names, most_named),
            ": the learning rate never reaches its full value; give fewer steps, or a "
            "fraction, as in warmup_steps: 0.1"));
}

/// Batches end with their epoch (BatchSource), so one that is larger than the dataset has all of
/// it.
void check_batch_sizes(const Job& job, const Plan& plan, std::size_t first,
                       std::vector<std::string>& warnings) {
    std::vector<std::string> names;
    for (std::size_t i = first; i < job.adapters.size(); ++i) {
        const AdapterJob& adapter = job.adapters[i];
        if (job.dataset(adapter.dataset).grows()) continue;
        const AdapterPlan& planned = plan.adapters[i];
        const std::int64_t units = units_of(planned.epoch_samples(), planned.group_samples);
        if (adapter.global_batch_size <= units) continue;
        names.push_back(cat(adapter.name, " (", adapter.global_batch_size, " of ", units, " ",
                            unit_word(planned.group_samples), ")"));
    }
    if (names.empty()) return;
    warnings.push_back(cat("global_batch_size is larger than the dataset of ",
                           some_of(names, most_named),
                           ": each step trains all of it once, and is an epoch; give a smaller "
                           "one, or more data"));
}

void check_rungs(const Job& job, const Plan& plan, std::size_t first,
                 std::vector<std::string>& warnings) {
    if (!job.sweep || job.sweep->scheduler == TrialScheduler::none || job.sweep->rungs < 2) return;
    std::vector<std::string> names;
    for (std::size_t i = first; i < job.adapters.size(); ++i) {
        const std::int32_t steps = plan.adapters[i].total_steps;
        const std::int32_t warmup = warmup_steps(job.adapters[i], steps);
        const std::int32_t by_share = rung_step(*job.sweep, steps, 0);
        const std::int32_t moved = rung_step(*job.sweep, steps, 0, warmup);
        if (!job.adapters[i].trial || moved == by_share) continue;
        names.push_back(
            cat(job.adapters[i].name, " (from step ", by_share, " to ", moved, " of ", steps, ")"));
    }
    if (names.empty()) return;
    warnings.push_back(cat("the first rung of ", names.size(),
                           names.size() == 1 ? " trial" : " trials",
                           " lies in the warm-up, where trials are alike, and is moved behind it: ",
                           some_of(names, most_named),
                           "; give fewer warmup_steps, fewer sweep.rungs or more steps to have it "
                           "elsewhere"));
}

void check_smoothing(const Job& job, std::size_t first, std::vector<std::string>& warnings) {
    std::vector<std::string> names;
    for (std::size_t i = first; i < job.adapters.size(); ++i) {
        const LossJob& loss = job.adapters[i].loss;
        const bool smoothed = loss.has_label_smoothing() && loss.label_smoothing > 0.0;
        if (loss.loss == Loss::dpo && smoothed) names.push_back(job.adapters[i].name);
    }
    if (names.empty()) return;
    warnings.push_back(cat("label_smoothing of dpo is that of cDPO here (",
                           some_of(names, most_named),
                           "); TRL 1.16 takes the key and does nothing with it: leave it out to "
                           "compare with TRL"));
}

/// Keys of losses in `defaults` that no adapter's loss is made with.
void check_unused_keys(const Job& job, std::vector<std::string>& warnings) {
    const struct {
        const char* key;
        double LossJob::*value;
        bool (*is_used)(const LossJob&);
        const char* users;
    } keys[] = {
        {"label_smoothing", &LossJob::label_smoothing,
         [](const LossJob& loss) { return loss.has_label_smoothing(); },
         "simpo, dpo and cpo with loss_type: sigmoid; sft has label_smoothing_factor"},
        {"label_smoothing_factor", &LossJob::label_smoothing_factor,
         [](const LossJob& loss) { return loss.loss == Loss::sft && !loss.is_dft(); },
         "sft with loss_type: nll; losses of pairs have label_smoothing"},
        {"z_loss", &LossJob::z_loss, [](const LossJob& loss) { return loss.loss == Loss::sft; },
         "sft"},
    };
    for (const auto& [key, value, is_used, users] : keys) {
        double given = 0.0;
        bool used = false;
        for (const AdapterJob& adapter : job.adapters) {
            given = std::max(given, adapter.loss.*value);
            used = used || is_used(adapter.loss);
        }
        if (given == 0.0 || used) continue;
        warnings.push_back(cat("defaults.", key, " is ", format_exact(given),
                               ", but no adapter uses it: it is a key of ", users));
    }
}

/// Optimizer steps of an adapter whose batches have no target, of all that it takes.
std::int32_t batches_without_target(const Job& job, const Plan& plan, AdapterId adapter,
                                    const std::vector<SampleInfo>& samples, SampleOrders& orders) {
    BatchSource source(job, plan, adapter, orders);
    std::int32_t without = 0;
    for (std::int32_t step = 0; step < plan.adapters[index(adapter)].total_steps; ++step) {
        const std::vector<std::int32_t> batch = source.samples(step);
        without += std::all_of(batch.begin(), batch.end(), [&](std::int32_t sample) {
            return samples[static_cast<std::size_t>(sample)].targets == 0;
        });
    }
    return without;
}

void check_batches(const Job& job, const Plan& plan, const DatasetFiles& files, std::size_t first,
                   std::vector<std::string>& warnings) {
    using Draw = std::tuple<DatasetId, std::uint64_t, std::int32_t, std::int32_t>;
    std::map<Draw, std::int32_t> counted;  // trials draw alike
    std::vector<std::string> names;
    SampleOrders orders;
    for (std::size_t i = first; i < job.adapters.size(); ++i) {
        const AdapterJob& adapter = job.adapters[i];
        const std::vector<SampleInfo>& samples = files.train[index(adapter.dataset)].infos();
        const bool all_train = std::all_of(samples.begin(), samples.end(),
                                           [](const SampleInfo& s) { return s.targets > 0; });
        if (adapter.ended || adapter.loss.loss != Loss::sft || all_train) continue;
        const std::int32_t steps = plan.adapters[i].total_steps;
        const Draw draw{adapter.dataset, adapter.seed, adapter.global_batch_size, steps};
        const auto [entry, fresh] = counted.emplace(draw, 0);
        if (fresh) {
            entry->second =
                batches_without_target(job, plan, static_cast<AdapterId>(i), samples, orders);
        }
        if (entry->second == 0) continue;
        names.push_back(cat(adapter.name, " (", entry->second, " of ", steps, ")"));
    }
    if (names.empty()) return;
    warnings.push_back(cat("batches without any label to train on: ", some_of(names, most_named),
                           "; each counts as an optimizer step of loss 0, for the learning rate "
                           "too: leave out samples without labels, or take a larger "
                           "global_batch_size"));
}

/// "k_proj [8, 32]": the first target whose smaller side is below the adapter's rank there.
std::string too_small_target(const AdapterJob& adapter, const ModelSpec& model) {
    for (std::int64_t layer = 0; layer < model.layers; ++layer) {
        for (int i = 0; i < linear_count; ++i) {
            const auto linear = static_cast<Linear>(i);
            const LinearShape shape = linear_shape(model, linear);
            if (!has_linear(model, linear)) continue;
            if (adapter.rank(layer, linear) <= std::min(shape.in, shape.out)) continue;
            return cat(module_name(linear), " [", shape.out, ", ", shape.in, "]");
        }
        if (!adapter.modules) return "";
    }
    return "";
}

void check_ranks(const Job& job, const Plan& plan, std::size_t first,
                 std::vector<std::string>& warnings) {
    std::vector<std::string> names;
    for (std::size_t i = first; i < job.adapters.size(); ++i) {
        const AdapterJob& adapter = job.adapters[i];
        const std::string target = too_small_target(adapter, plan.model);
        if (target.empty() || adapter.is_vera()) continue;  // its factors are not trained
        names.push_back(cat(adapter.name, " (", adapter.largest_rank(), ", ", target, ")"));
    }
    if (names.empty()) return;
    warnings.push_back(cat("r is larger than the smaller side of a target of ",
                           some_of(names, most_named),
                           ": what is above costs memory and time and gains nothing; give a "
                           "smaller r, or a smaller one for the target by rank_pattern"));
}

void check_patterns(const Job& job, const Plan& plan, std::size_t first,
                    std::vector<std::string>& warnings) {
    std::vector<std::string> found;
    for (std::size_t i = first; i < job.adapters.size(); ++i) {
        const AdapterJob& adapter = job.adapters[i];
        for (const DeadRule& rule : shadowed_rules(adapter, plan.model)) {
            found.push_back(cat("adapters.", adapter.name, ".", rule.key, ": ", rule.what));
        }
    }
    if (found.empty()) return;
    warnings.push_back(cat(some_of(found, most_named),
                           ": no effect, because an earlier entry matches the same modules; write "
                           "it before that entry"));
}

void check_rewards(const Job& job, std::size_t first, std::vector<std::string>& warnings) {
    std::vector<std::string> drawn;
    std::vector<std::string> evaluated;
    for (std::size_t i = first; i < job.adapters.size(); ++i) {
        const AdapterJob& adapter = job.adapters[i];
        if (!adapter.rewards.wanted()) continue;
        if (adapter.rewards.temperature != 1.0 || adapter.rewards.top_p < 1.0) {
            drawn.push_back(adapter.name);
        }
        const DatasetJob& prompts = job.dataset(*adapter.rewards.prompts);
        if (prompts.only_prompts && prompts.has_eval()) evaluated.push_back(adapter.name);
    }
    if (!drawn.empty()) {
        warnings.push_back(
            cat("adapters with rewards sample with a temperature or top_p other than 1, but their "
                "loss is at temperature 1, so the texts are off-policy: ",
                some_of(drawn, most_named)));
    }
    if (!evaluated.empty()) {
        warnings.push_back(
            cat("adapters with rewards are not evaluated, so the held-out samples of their prompts "
                "are not used: ",
                some_of(evaluated, most_named), "; evaluate their exports"));
    }
}

void check_bytes(const DatasetJob& dataset, std::int64_t vocabulary,
                 std::vector<std::string>& warnings) {
    if (dataset.tokenizer != Tokenizer::bytes || vocabulary <= largest_byte_vocabulary) return;
    warnings.push_back(cat("datasets.", dataset.name,
                           ": tokenizer: bytes makes each byte a token, but the base model's ",
                           vocabulary,
                           " tokens are those of another tokenizer, so adapters would train on "
                           "noise; make tokens with scripts/prepare_data.py --tokenizer HF_DIR"));
}

void check_lengths(const DatasetJob& dataset, const Dataset& data, std::int64_t positions,
                   std::vector<std::string>& warnings) {
    std::int64_t longer = 0;
    std::int64_t longest = 0;
    for (const SampleInfo& sample : data.infos()) {
        longest = std::max<std::int64_t>(longest, sample.tokens);
        if (sample.tokens > positions) ++longer;
    }
    if (positions == 0 || longer == 0) return;
    warnings.push_back(cat("datasets.", dataset.name, ": ", longer, " of ", data.infos().size(),
                           " samples are longer than the ", positions,
                           " positions that the base model was made for (max_position_embeddings)"
                           ", the longest ",
                           longest, " tokens: set max_seq_len to ", positions,
                           " and over_length to truncate or drop"));
}

void check_labels(const DatasetJob& dataset, const Dataset& data,
                  std::vector<std::string>& warnings) {
    const LengthReport& report = data.report();
    if (report.all_trained == 0) return;
    warnings.push_back(cat("datasets.", dataset.name, ": ", report.all_trained, " of ",
                           report.samples,
                           " samples train on every token, prompts too (no labels, or none is "
                           "-100); scripts/prepare_data.py writes labels for completions alone"));
}

void check_jump(const AdapterJob& adapter, int steps, int former_steps, int taken,
                std::vector<std::string>& warnings) {
    const double last = learning_rate(adapter, former_steps, taken - 1);
    const double next = learning_rate(adapter, steps, taken);
    if (next <= jump_worth_telling * last) return;
    warnings.push_back(cat("adapter ", adapter.name, " has ", steps, " steps now, in place of ",
                           former_steps, ": its learning rate jumps from ", format_exact(last),
                           " (step ", taken, ") to ", format_exact(next), " (step ", taken + 1,
                           "), since the longer schedule counts from the first step; a new adapter "
                           "with init_from begins a schedule of its own"));
}

}  // namespace

void check_tokenizers(const DatasetJob& dataset, const Dataset& data, const std::string& tokenizer,
                      std::vector<std::string>& warnings) {
    if (tokenizer.empty()) return;
    for (const auto& [path, of_file] : data.tokenizers()) {
        if (of_file == tokenizer || !of_file.starts_with(digest_prefix)) continue;
        warnings.push_back(
            cat("datasets.", dataset.name, ": ", path, " was made with another tokenizer.json (",
                of_file, ") than the base model came with (", tokenizer,
                "): where token ids differ, adapters would train on noise; prepare the file again "
                "with scripts/prepare_data.py --tokenizer and the folder that was imported"));
    }
}

BaseFacts BaseFacts::of(const WeightSource& weights) {
    return {weights.max_positions(), weights.tokenizer(), weights.end_tokens(),
            base_dropout_note(weights.config())};
}

std::vector<std::string> job_warnings(const Job& job, const Plan& plan, const DatasetFiles& files,
                                      const BaseFacts& base, const JobTail& tail) {
    std::vector<std::string> warnings;
    if (tail.first_adapter == 0) {
        check_evaluations(job, warnings);
        check_unused_keys(job, warnings);
    }
    if (tail.first_adapter == 0 && !base.dropout_note.empty()) {
        warnings.push_back(base.dropout_note);
    }
    check_warmups(job, plan, tail.first_adapter, warnings);
    check_batch_sizes(job, plan, tail.first_adapter, warnings);
    check_rungs(job, plan, tail.first_adapter, warnings);
    check_ranks(job, plan, tail.first_adapter, warnings);
    check_patterns(job, plan, tail.first_adapter, warnings);
    check_smoothing(job, tail.first_adapter, warnings);
    check_rewards(job, tail.first_adapter, warnings);
    check_batches(job, plan, files, tail.first_adapter, warnings);
    for (std::size_t i = tail.first_dataset; i < job.datasets.size(); ++i) {
        check_bytes(job.datasets[i], plan.model.vocab_size, warnings);
        const Dataset& data = files.train[i];
        check_tokenizers(job.datasets[i], data, base.tokenizer, warnings);
        check_lengths(job.datasets[i], data, base.positions, warnings);
        check_labels(job.datasets[i], data, warnings);
    }
    return warnings;
}

std::vector<std::string> schedule_warnings(const Job& job, const Plan& plan, const Plan& former,
                                           const RunState& state) {
    std::vector<std::string> warnings;
    const std::size_t known = std::min(former.adapters.size(), state.adapters.size());
    for (std::size_t i = 0; i < known; ++i) {
        const int steps = plan.adapters[i].total_steps;
        const int former_steps = former.adapters[i].total_steps;
        const int taken = state.adapters[i].steps;
        if (taken == 0 || steps <= former_steps || taken >= steps) continue;
        check_jump(job.adapters[i], steps, former_steps, taken, warnings);
    }
    return warnings;
}

}  // namespace loratrain
