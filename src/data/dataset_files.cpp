#include "data/dataset_files.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <map>
#include <system_error>
#include <utility>

#include "base/error.h"
#include "io/files.h"
#include "io/json_text.h"
#include "plan/sample_counts.h"

namespace loratrain {

namespace {

/// What a group counts as where samples are counted: a pair as one.
std::int64_t examples_of_group(const Dataset& dataset) {
    return group_examples(static_cast<std::int32_t>(dataset.group_samples()));
}

std::unique_ptr<Dataset> hold_out(const Job& job, const DatasetJob& dataset, Dataset& train,
                                  Problems& problems) {
    const std::int64_t of_group = examples_of_group(train);
    const std::int64_t samples = std::ssize(train.infos()) / train.group_samples() * of_group;
    const std::int64_t wanted = held_out_samples(dataset.eval_split, samples);
    std::int64_t count = (wanted + of_group - 1) / of_group;
    if (count * of_group == samples) count = 0;
    if (count > 0) return std::make_unique<Dataset>(train.hold_out(count, job.run.seed));
    problems.add(cat(job.path, ": datasets.", dataset.name, ".eval_split"),
                 cat("leaves nothing to train on; ", dataset.path, " has ", samples, " ",
                     unit_word(static_cast<std::int32_t>(train.group_samples()))),
                 "hold out fewer samples, or give an eval_path");
    return nullptr;
}

const char* words_of(const Dataset& dataset) {
    switch (data_kind(static_cast<std::int32_t>(dataset.group_samples()))) {
        case DataKind::pairs:
            return "pairs";
        case DataKind::labelled:
            return "examples with labels";
        case DataKind::single:
            break;
    }
    return "single samples";
}

void check_kinds(const Job& job, const DatasetJob& dataset, const Dataset* train,
                 const Dataset* eval, Problems& problems) {
    if (train == nullptr || eval == nullptr || train->group_samples() == eval->group_samples()) {
        return;
    }
    problems.add(cat(job.path, ": datasets.", dataset.name, ".eval_path"),
                 cat("holds ", words_of(*eval), ", ", dataset.path, " ", words_of(*train)),
                 "give files of one kind");
}

}  // namespace

std::int64_t held_out_samples(const EvalSplit& split, std::int64_t samples) {
    // What a product like 0.07 * 100 is too large by does not count.
    constexpr double rounding = 1e-9;
    const std::int64_t count =
        split.samples > 0 ? split.samples
                          : static_cast<std::int64_t>(std::ceil(
                                split.fraction * static_cast<double>(samples) * (1.0 - rounding)));
    return count < samples ? count : 0;
}

void open_datasets(const Job& job, std::int64_t vocab_size, DatasetFiles& files,
                   Problems& problems) {
    const auto open = [&](const std::vector<std::string>& paths, const DatasetJob& dataset) {
        std::unique_ptr<Dataset> opened;
        collect(problems, [&] { opened = std::make_unique<Dataset>(paths, dataset, vocab_size); });
        return opened;
    };
    for (std::size_t i = files.eval.size(); i < job.datasets.size(); ++i) {
        const DatasetJob& dataset = job.datasets[i];
        files.eval.emplace_back();
        if (dataset.grows()) {
            files.train.push_back(Dataset::growing());
            continue;
        }
        const auto train = open(dataset.paths(), dataset);
        if (!dataset.eval_path.empty()) {
            files.eval.back() = open(dataset.eval_paths(), dataset);
            check_kinds(job, dataset, train.get(), files.eval.back().get(), problems);
        } else if (train && dataset.eval_split.any()) {
            files.eval.back() = hold_out(job, dataset, *train, problems);
        }
        if (train) files.train.push_back(std::move(*train));
    }
}

void check_growing_folders(const Job& job, Problems& problems) {
    for (const DatasetJob& dataset : job.datasets) {
        if (!dataset.grows() || dataset.made_in_job) continue;
        std::error_code error;
        if (std::filesystem::is_directory(dataset.path, error)) continue;
        problems.add(
            dataset.path,
            cat("is not a folder that exists", error ? cat(" (", error.message(), ")") : ""),
            "create the folder; if you mean a file, leave out the / at the end of its path");
    }
}

DatasetInfo dataset_info(const DatasetFiles& files, DatasetId id, const DatasetJob& job,
                         std::int32_t batch) {
    DatasetInfo info;
    const Dataset& train = files.train.at(index(id));
    if (train.grows()) {
        const auto tokens = static_cast<std::int32_t>(job.max_seq_len);
        info.train.assign(static_cast<std::size_t>(batch), {tokens, tokens - 1});
        info.rollouts = true;
        info.arrivals.emplace();
        return info;
    }
    info.train = train.infos();
    info.train_weights = train.weights();
    info.group_samples = static_cast<std::int32_t>(train.group_samples());
    info.rollouts = train.is_rollouts();
    for (std::size_t f = 0; f < job.files.size(); ++f) {
        info.files.push_back(
            file_share(train.samples_of_files()[f], job.files[f].weight, info.group_samples));
    }
    const Dataset* eval = files.eval.at(index(id)).get();
    if (eval == nullptr) return info;
    info.eval = eval->infos();
    info.eval_weights = eval->weights();
    if (job.has_several_files() || job.eval_files.size() > 1) {
        info.eval_files = eval->samples_of_files();
    }
    return info;
}

std::int32_t batch_on(std::span<const AdapterJob> adapters, DatasetId dataset) {
    const auto user = std::find_if(adapters.begin(), adapters.end(),
                                   [&](const AdapterJob& a) { return a.dataset == dataset; });
    return user == adapters.end() ? 1 : user->global_batch_size;
}

namespace {

std::int64_t group_of_prompt(const Dataset& data) {
    return std::max<std::int64_t>(1, data.group_samples());
}

/// Reads one after the other the first `most` prompts that `asking` asks for. InputError after the
/// last if some are empty.
template <typename Take>
void read_prompts(const Dataset& data, std::int64_t most, const std::string& dataset,
                  const char* asking, const Take& take) {
    const std::int64_t samples = std::min(most, prompt_count(data));
    std::vector<std::int64_t> without;
    for (std::int64_t i = 0; i < samples; ++i) {
        Prompt prompt = read_prompt(data, i);
        if (prompt.tokens.empty()) without.push_back(prompt.sample);
        take(std::move(prompt));
    }
    if (without.empty()) return;
    throw InputError(
        cat("datasets.", dataset),
        cat(without.size(), " of the ", samples, " samples that ", asking,
            " asks for have no prompt, the first is ", without.front(),
            ": their first token is trained already"),
        cat("prepare the data with prompts that are not trained (labels of -100), or leave ",
            asking, " out"));
}

/// InputError if prompts of these `lengths`, in the order of `data`, are too few or too long for
/// the adapter.
void check_lengths(const Job& job, const AdapterJob& adapter, const Dataset& data,
                   std::span<const std::int64_t> lengths) {
    const std::string& name = job.dataset(*adapter.rewards.prompts).name;
    const std::string where = cat(job.path, ": adapters.", adapter.name);
    const int of_batch = adapter.global_batch_size / adapter.rewards.group_size;
    if (std::ssize(lengths) < of_batch) {
        throw InputError(
            where + ".global_batch_size",
            cat("needs ", of_batch, " prompts a step, but dataset ", name, " has ", lengths.size()),
            "give more prompts, or a smaller global_batch_size");
    }
    const std::int64_t most =
        job.dataset(adapter.dataset).max_seq_len - adapter.rewards.max_new_tokens;
    const auto too_long = std::find_if(lengths.begin(), lengths.end(),
                                       [&](std::int64_t length) { return length > most; });
    if (too_long == lengths.end()) return;
    throw InputError(
        where + ".rewards.max_new_tokens",
        cat("is ", adapter.rewards.max_new_tokens, ", but sample ",
            (too_long - lengths.begin()) * group_of_prompt(data), " of ", name, " has a prompt of ",
            *too_long, " tokens and max_seq_len is ", job.dataset(adapter.dataset).max_seq_len),
        "raise max_seq_len of the dataset, or lower max_new_tokens");
}

}  // namespace

std::int64_t prompt_count(const Dataset& data) {
    return std::ssize(data.infos()) / group_of_prompt(data);
}

Prompt read_prompt(const Dataset& data, std::int64_t i) {
    const std::int64_t place = i * group_of_prompt(data);
    const TokenSample sample = data.read(place);
    const auto is_target = [](std::int32_t label) { return label >= 0; };
    const auto first = std::find_if(sample.labels.begin(), sample.labels.end(), is_target);
    const auto last = std::find_if_not(first, sample.labels.end(), is_target);
    const auto ids = sample.input_ids.begin();
    const auto begin = ids + (first - sample.labels.begin());
    return {place, {ids, begin}, {begin, ids + (last - sample.labels.begin())}};
}

std::vector<Prompt> prompts_in(const Dataset& data, std::int64_t most, const std::string& dataset,
                               const char* asking) {
    std::vector<Prompt> prompts;
    read_prompts(data, most, dataset, asking,
                 [&](Prompt prompt) { prompts.push_back(std::move(prompt)); });
    return prompts;
}

void check_prompts(const Job& job, const DatasetFiles& files, Problems& problems) {
    std::map<DatasetId, std::vector<const AdapterJob*>> users;
    for (const AdapterJob& adapter : job.adapters) {
        if (adapter.rewards.wanted()) users[*adapter.rewards.prompts].push_back(&adapter);
    }
    for (const auto& [id, adapters] : users) {
        const Dataset& data = files.train.at(index(id));
        std::vector<std::int64_t> lengths;
        const bool read = collect(problems, [&] {
            read_prompts(
                data, prompt_count(data), job.dataset(id).name, "rewards",
                [&](const Prompt& prompt) { lengths.push_back(std::ssize(prompt.tokens)); });
        });
        if (!read) continue;
        for (const AdapterJob* adapter : adapters) {
            collect(problems, [&] { check_lengths(job, *adapter, data, lengths); });
        }
    }
}

void write_held_out(const Job& job, const DatasetFiles& files) {
    OrderedJson json;
    for (std::size_t i = 0; i < job.datasets.size(); ++i) {
        const DatasetJob& dataset = job.datasets[i];
        if (!dataset.eval_split.any()) continue;
        const auto positions = files.eval[i]->positions_of_files();
        if (dataset.files.empty()) json[dataset.name] = positions.front();
        for (std::size_t f = 0; f < dataset.files.size(); ++f) {
            json[dataset.name][dataset.files[f].name] = positions[f];
        }
    }
    if (!json.empty()) write_text_atomic(job.run.dir + "/held_out.json", dump_json(json) + "\n");
}

}  // namespace loratrain
