#include "plan/deploy/adapter_checks.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <limits>
#include <set>
#include <string_view>
#include <utility>

#include "base/text.h"
#include "config/dead_rules.h"
#include "config/job_words.h"
#include "config/model_limits.h"
#include "plan/deploy/workload.h"

namespace loratrain {

namespace {

/// A batch of rollouts that come travels to other ranks in one message (AddSamples), in which a
/// token has at most so many bytes: id, label, weight, advantage and log-probability; and a sample
/// so many beside.
constexpr std::int64_t bytes_of_token = 20;
constexpr std::int64_t bytes_of_sample = 64;
constexpr std::int64_t most_bytes_of_message = INT32_MAX;

/// What groups are called before a verb: of one, of several.
std::pair<std::string, std::string> group_words(std::int32_t group_samples) {
    switch (data_kind(group_samples)) {
        case DataKind::pairs:
            return {"pair has", "pairs have"};
        case DataKind::labelled: {
            const std::string of = cat(" of kl_batch_size ", group_examples(group_samples),
                                       " examples and as many mismatched ones");
            return {"group" + of + " has", "groups" + of + " have"};
        }
        case DataKind::single:
            break;
    }
    return {"sample has", "samples have"};
}

struct KindWords {
    const char* name;
    const char* losses;
    const char* data;
};
KindWords kind_words(DataKind kind, bool rollouts) {
    if (rollouts) {
        return {"rollouts, with advantages and logprobs", rollout_words, "a dataset of rollouts"};
    }
    switch (kind) {
        case DataKind::pairs:
            return {"pairs of chosen and rejected samples", "dpo, cpo, simpo, orpo or cit",
                    "a dataset of pairs"};
        case DataKind::labelled:
            return {"samples with a label of true or false", "kto", "a dataset with labels"};
        case DataKind::single:
            break;
    }
    return {"single samples", "sft", "a dataset of single samples"};
}

DataKind kind_for(const LossJob& loss) {
    if (loss.loss == Loss::kto) return DataKind::labelled;
    return loss.is_of_pairs() || loss.is_contrastive() ? DataKind::pairs : DataKind::single;
}

}  // namespace

AdapterChecks::AdapterChecks(const Job& job, const ModelSpec& model, std::string source,
                             Problems& problems)
    : job_(job), model_(model), source_(std::move(source)), problems_(problems) {}

void AdapterChecks::dataset(DatasetId id, const DatasetInfo& info, std::int64_t most,
                            const std::string& hint_longer, const std::string& limit) {
    const DatasetJob& dataset = job_.dataset(id);
    const std::string key = cat("datasets.", dataset.name);
    samples(key + ".path", dataset.path, info.train);
    lengths(key + ".path", info.train, info.group_samples, most, hint_longer, limit);
    for (const AdapterJob& adapter : job_.adapters) {
        if (adapter.dataset != id || adapter.ended || !adapter.loss.is_contrastive()) continue;
        compared(adapter, info, most, hint_longer, limit);
    }
    if (!dataset.has_eval() || dataset.grows()) return;
    const bool own_file = !dataset.eval_path.empty();
    const std::string eval_key = key + (own_file ? ".eval_path" : ".eval_split");
    samples(eval_key, own_file ? dataset.eval_path : "the split", info.eval);
    lengths(eval_key, info.eval, info.group_samples, most, hint_longer, limit);
}

void AdapterChecks::samples(const std::string& key, const std::string& path,
                            const std::vector<SampleInfo>& samples) {
    const bool any_target = std::any_of(samples.begin(), samples.end(),
                                        [](const SampleInfo& s) { return s.targets > 0; });
    if (samples.empty()) {
        problems_.add(
            where(key), cat(path, " has no samples"),
            "give a file with samples; if over_length: drop dropped them all, raise max_seq_len");
    } else if (!any_target) {
        problems_.add(where(key), cat(path, " has no label to train on"),
                      "write the token's id as the label of each token to train; a sample needs "
                      "two tokens or more");
    }
}

void AdapterChecks::lengths(const std::string& key, const std::vector<SampleInfo>& samples,
                            std::int32_t group_samples, std::int64_t most,
                            const std::string& hint_longer, const std::string& limit) {
    const std::vector<std::int64_t> groups = tokens_of_groups(samples, group_samples);
    const auto longest = std::max_element(groups.begin(), groups.end());
    if (longest == groups.end() || *longest <= most) return;
    const auto too_long = std::count_if(groups.begin(), groups.end(),
                                        [&](std::int64_t tokens) { return tokens > most; });
    const auto [one, several] = group_words(group_samples);
    std::string hint = hint_longer;
    hint.replace(hint.find('#'), 1, std::to_string(*longest));
    problems_.add(
        where(key),
        cat(too_long, " ", too_long == 1 ? one : several, " more tokens than ", limit, " ", most,
            "; the longest is number ", longest - groups.begin(), " (from 0), with ", *longest,
            " tokens"),
        hint + (data_kind(group_samples) == DataKind::labelled ? ", a smaller kl_batch_size" : "") +
            ", or a smaller max_seq_len with over_length: truncate");
}

void AdapterChecks::compared(const AdapterJob& adapter, const DatasetInfo& info, std::int64_t most,
                             const std::string& hint_longer, const std::string& limit) {
    const std::string loss = word_of(loss_words, adapter.loss.loss);
    const std::string key = cat("adapters.", adapter.name);
    const auto empty = std::count_if(info.train.begin(), info.train.end(),
                                     [](const SampleInfo& s) { return s.targets == 0; });
    if (empty > 0) {
        problems_.add(
            where(cat("datasets.", job_.dataset(adapter.dataset).name, ".path")),
            cat(empty, empty == 1 ? " sample has" : " samples have", " no label to train on; ",
                loss, " of adapter ", adapter.name, " compares samples by their last label"),
            "leave out what has no answer, or set over_length: drop");
    }
    const std::int64_t batch = largest_batch(adapter, info);
    if (batch <= most) return;
    const auto fitting = [&](std::int32_t size) {
        AdapterJob smaller = adapter;
        smaller.global_batch_size = size;
        return largest_batch(smaller, info) <= most;
    };
    std::int32_t size = adapter.global_batch_size;
    while (size > 1 && !fitting(size)) --size;
    std::string hint = hint_longer;
    hint.replace(hint.find('#'), 1, std::to_string(batch));
    problems_.add(where(key + ".global_batch_size"),
                  cat(adapter.global_batch_size, " pairs, which ", loss,
                      " compares with each other in one microbatch, have up to ", batch,
                      " tokens, more than ", limit, " ", most),
                  cat(hint, size > 1 ? cat(", or global_batch_size: ", size) : std::string(),
                      ", or a smaller max_seq_len"));
}

void AdapterChecks::start(const AdapterJob& adapter) {
    if (!has_residual_start(adapter.form)) return;
    for (std::int64_t layer = 0; layer < model_.layers; ++layer) {
        for (int i = 0; i < linear_count; ++i) {
            const auto linear = static_cast<Linear>(i);
            const LinearShape shape = linear_shape(model_, linear);
            const int rank = adapter.rank(layer, linear);
            if (!has_linear(model_.layer(layer), linear)) continue;
            if (rank <= std::min(shape.in, shape.out)) continue;
            problems_.add(
                where(cat("adapters.", adapter.name, ".init_lora_weights")),
                cat("'", word_of(initial_words, adapter.init_lora_weights), "' needs r of at most ",
                    std::min(shape.in, shape.out), " on ", module_path(layer, linear), " [",
                    shape.out, ", ", shape.in, "], which has r ", rank),
                "give a smaller r, or one for these modules by rank_pattern");
            return;
        }
    }
}

void AdapterChecks::form(const AdapterJob& adapter) {
    start(adapter);
    if (!adapter.use_dora || job_.model.precision != Precision::fp8) return;
    problems_.add(where(cat("adapters.", adapter.name, ".use_dora")),
                  "DoRA needs the norms of weights that model.precision: fp8 does not keep",
                  "use model.precision: bf16, or use_dora: false");
}

void AdapterChecks::tokens(const AdapterJob& adapter, const std::vector<ReplicaJob>& replicas) {
    if (adapter.trainable_token_indices.empty()) return;
    const std::string key = where(cat("adapters.", adapter.name, ".trainable_token_indices"));
    const ModelLimit* limit = limit_of(model_, Ability::tokens_on_stages);
    const auto staged = std::find_if(replicas.begin(), replicas.end(),
                                     [](const ReplicaJob& of) { return of.stages > 1; });
    if (limit != nullptr && staged != replicas.end()) {
        const std::size_t tokens = adapter.trainable_token_indices.size();
        problems_.add(key,
                      cat("has ", tokens, tokens == 1 ? " token" : " tokens", ", but ",
                          limit->what(model_), "; a replica has pp: ", staged->stages),
                      limit->hint);
    }
    for (const std::int32_t token : adapter.trainable_token_indices) {
        if (token < model_.vocab_size) continue;
        return problems_.add(
            key, cat(token, " is not one of the model's ", model_.vocab_size, " tokens"),
            "import a base whose embedding has the new tokens: resize_token_embeddings()");
    }
}

void AdapterChecks::named_targets(const AdapterJob& adapter) {
    if (targets_mlps_of_experts(adapter, model_)) experts(adapter);
    if (adapter.targets == all_linears()) return;
    std::set<std::string_view> known;
    for (int i = 0; i < linear_count; ++i) {
        const auto linear = static_cast<Linear>(i);
        if (has_target(model_, linear)) known.insert(module_name(linear));
    }
    for (int i = 0; i < linear_count; ++i) {
        const auto linear = static_cast<Linear>(i);
        if (!adapter.targets_linear(linear) || !known.insert(module_name(linear)).second) continue;
        problems_.add(
            where(cat("adapters.", adapter.name, ".target_modules")),
            cat(module_name(linear), " is not a linear layer of a ", model_.family, " model"),
            cat("it has ", join(target_names(model_), ", ")));
    }
}

void AdapterChecks::experts(const AdapterJob& adapter) {
    const auto refuse = [&](const char* key, const std::string& what, const std::string& hint) {
        problems_.add(where(cat("adapters.", adapter.name, ".", key)), what, hint);
    };
    const auto limited = [&](const char* key, Ability ability, const std::string& subject = "") {
        const ModelLimit* limit = limit_of(model_, ability);
        if (limit != nullptr) refuse(key, subject + limit->what(model_), limit->hint);
    };
    const bool in_experts = targets_experts(adapter, model_);
    const bool gate = in_experts && adapter.targets_linear(Linear::gate);
    const bool up = in_experts && adapter.targets_linear(Linear::up);
    if (gate != up || (gate && !adapter.targets_linear(Linear::down))) {
        refuse(
            "target_modules",
            "names gate_proj or up_proj of experts without the rest: PEFT keeps these two in one "
            "tensor, and loads them only together with down_proj",
            "name all three, or down_proj alone");
    }
    if (in_experts) limited("target_modules", Ability::experts);
    if (adapter.modules) limited("target_modules", Ability::modules);
    if (adapter.lora_dropout > 0.0) limited("lora_dropout", Ability::dropout);
    if (adapter.use_dora) limited("use_dora", Ability::dora);
    if (adapter.is_vera()) limited("peft_type", Ability::vera);
    if (has_residual_start(adapter.form)) {
        limited("init_lora_weights", Ability::residual_start,
                cat("'", word_of(initial_words, adapter.init_lora_weights), "' "));
    }
    if (adapter.use_rslora && gate && !adapter.plain_export) {
        refuse("use_rslora",
               "PEFT keeps gate_proj and up_proj of experts in one tensor with twice the r and "
               "lora_alpha, and would scale both by sqrt(2) too much",
               "set export: {scaling: plain}, or use_rslora: false");
    }
}

void AdapterChecks::rules(const AdapterJob& adapter) {
    for (const DeadRule& rule : dead_rules(adapter, model_)) {
        problems_.add(where(cat("adapters.", adapter.name, ".", rule.key)),
                      cat(rule.what, " of this ", model_.family, " model"),
                      cat("it has ", join(linear_names(model_), ", "), " in layers 0 to ",
                          model_.layers - 1));
    }
}

void AdapterChecks::targets(const AdapterJob& adapter) {
    named_targets(adapter);
    if (!adapter.modules || targets_mlps_of_experts(adapter, model_)) return;
    if (adapter.targets_outer()) return rules(adapter);
    for (std::int64_t layer = 0; layer < model_.layers; ++layer) {
        for (int i = 0; i < linear_count; ++i) {
            const auto linear = static_cast<Linear>(i);
            if (target_rank(adapter, model_, layer, linear) > 0) return rules(adapter);
        }
    }
    problems_.add(where(cat("adapters.", adapter.name, ".target_modules")),
                  cat("none of them is in the ", model_.layers, " layers of the model"),
                  cat("layers are numbered from 0 to ", model_.layers - 1));
}

void AdapterChecks::check_kind(const AdapterJob& adapter, const DatasetInfo& info) {
    const DataKind held = data_kind(info.group_samples);
    const DataKind taken = kind_for(adapter.loss);
    const bool rollouts = adapter.loss.is_of_rollouts();
    if (held != taken || info.rollouts != rollouts) {
        const KindWords wanted = kind_words(taken, rollouts);
        const KindWords found = kind_words(held, info.rollouts);
        problems_.add(
            where(cat("adapters.", adapter.name, ".loss")),
            cat(word_of(loss_words, adapter.loss.loss), " trains on ", wanted.name,
                ", but dataset ", job_.dataset(adapter.dataset).name, " holds ", found.name),
            cat("give the adapter loss: ", found.losses, ", or ", wanted.data, " (jobs/data.md)"));
        return;
    }
    if (adapter.loss.is_contrastive() && adapter.global_batch_size < 2) {
        problems_.add(where(cat("adapters.", adapter.name, ".global_batch_size")),
                      "is 1 pair, which cit has nothing to compare with", "give 2 or more");
    }
    const std::int32_t examples = group_examples(info.group_samples);
    if (adapter.global_batch_size % examples == 0) return;
    problems_.add(where(cat("adapters.", adapter.name, ".global_batch_size")),
                  cat("is ", adapter.global_batch_size, ", not a multiple of datasets.",
                      job_.dataset(adapter.dataset).name, ".kl_batch_size ", examples),
                  "change one of them: a batch has whole groups of neighbours");
}

void AdapterChecks::check_growing(const AdapterJob& adapter) {
    const DatasetJob& dataset = job_.dataset(adapter.dataset);
    const auto refuse = [&](const std::string& key, const std::string& what, const char* hint) {
        problems_.add(where(cat("adapters.", adapter.name, ".", key)),
                      cat(what, ", but its dataset ", dataset.name, " is a folder of rollouts, ",
                          dataset.path),
                      hint);
    };
    const auto users =
        std::count_if(job_.adapters.begin(), job_.adapters.end(),
                      [&](const AdapterJob& other) { return other.dataset == adapter.dataset; });
    if (users > 1) {
        refuse("dataset", cat(users, " adapters train on it"), "give each a folder of its own");
    }
    if (adapter.trial) refuse("dataset", "is a trial of a sweep", "give trials files");
    if (!adapter.max_steps) {
        refuse("max_steps", "is missing", "say after how many steps it ends at the latest");
    } else if (*adapter.max_steps > INT32_MAX / adapter.global_batch_size) {
        refuse("max_steps",
               cat(*adapter.max_steps, " steps of ", adapter.global_batch_size,
                   " samples are more "
                   "than can be numbered"),
               "take fewer steps");
    }
    const std::int64_t of_sample = dataset.max_seq_len * bytes_of_token + bytes_of_sample;
    if (adapter.global_batch_size > most_bytes_of_message / of_sample) {
        refuse("global_batch_size",
               cat(adapter.global_batch_size, " samples of up to ", dataset.max_seq_len,
                   " tokens are more than the ranks can be sent at once"),
               "take smaller batches, or a smaller max_seq_len");
    }
    if (adapter.loss.has_reference()) {
        refuse("beta", "needs a reference, which is computed before the first step",
               "set beta: 0, or give a file");
    }
    if (job_.parallel.by_workers()) {
        refuse(adapter.rewards.wanted() ? "rewards" : "dataset", "trains on a worker",
               "leave parallel.assignment out");
    }
    if (dataset.has_eval()) {
        problems_.add(where(cat("datasets.", dataset.name,
                                dataset.eval_path.empty() ? ".eval_split" : ".eval_path")),
                      cat("cannot be used with ", dataset.path, ", a folder of rollouts"),
                      "evaluate its exports, or another adapter");
    }
}

AdapterPlan AdapterChecks::plan(const AdapterJob& adapter, const DatasetInfo& info) {
    AdapterPlan result;
    result.name = adapter.name;
    result.samples = std::ssize(info.train);
    result.group_samples = info.group_samples;
    result.files = info.files;
    result.eval_files = info.eval_files;
    check_kind(adapter, info);
    if (info.arrivals) check_growing(adapter);
    if (adapter.loss.max_staleness && !info.arrivals) {
        problems_.add(where(cat("adapters.", adapter.name, ".max_staleness")),
                      cat("is only for a folder of rollouts, and datasets.",
                          job_.dataset(adapter.dataset).name, " is not one"),
                      "leave it out, or give the folder, with / at its end");
    }
    const std::int64_t groups = result.epoch_samples() / result.group_samples;
    const std::int64_t batch =
        std::max<std::int64_t>(1, adapter.global_batch_size / group_examples(result.group_samples));
    result.steps_per_epoch = static_cast<std::int32_t>((groups + batch - 1) / batch);
    const double steps = adapter.max_steps
                             ? static_cast<double>(*adapter.max_steps)
                             : std::ceil(adapter.num_train_epochs * result.steps_per_epoch);
    const bool possible = steps >= 1.0 && steps <= std::numeric_limits<std::int32_t>::max();
    if (!possible) {
        problems_.add(where(cat("adapters.", adapter.name,
                                adapter.max_steps ? ".max_steps" : ".num_train_epochs")),
                      cat("leads to ", steps, " optimizer steps"),
                      cat("give at least 1 and at most ", std::numeric_limits<std::int32_t>::max(),
                          " steps"));
    }
    result.total_steps = possible ? static_cast<std::int32_t>(steps) : 1;
    return result;
}

bool can_hold_adapters(const Job& job, const ModelSpec& model, const ReplicaJob& replica) {
    const bool trains_rows = std::any_of(
        job.adapters.begin(), job.adapters.end(),
        [](const AdapterJob& adapter) { return !adapter.trainable_token_indices.empty(); });
    return !trains_rows || replica.stages == 1 || can(model, Ability::tokens_on_stages);
}

void take_lengths(const DatasetInfo& info, Plan& plan) {
    for (const SampleInfo& s : info.train) {
        plan.longest_sample = std::max<std::int64_t>(plan.longest_sample, s.tokens);
    }
}

}  // namespace loratrain
