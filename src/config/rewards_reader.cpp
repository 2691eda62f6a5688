#include "config/rewards_reader.h"

#include <algorithm>
#include <filesystem>

#include "base/text.h"
#include "config/adapter_keys.h"
#include "config/key_writer.h"
#include "config/section_reader.h"

namespace loratrain {

namespace {

void read_prompts(SectionReader& section, RewardsJob& job) {
    job.prompts = dataset_named(section, "prompts");
}

void write_prompts(KeyWriter& out, const RewardsJob& job) {
    if (job.prompts) out.put("prompts", out.job().dataset(*job.prompts).name);
}

/// Files that two write would be mixed.
void check_own_folders(const Job& job, const Place& place, ProblemLog& log) {
    const auto folder_of = [](const DatasetJob& dataset) {
        std::error_code unknown;
        return std::filesystem::weakly_canonical(dataset.path, unknown);
    };
    for (const DatasetJob& made : job.datasets) {
        if (!made.made_in_job) continue;
        for (const DatasetJob& other : job.datasets) {
            const bool first = other.made_in_job && &other < &made;
            if (&other == &made || !other.grows() || first) continue;
            if (folder_of(other) != folder_of(made)) continue;
            log.add(place,
                    cat("datasets: ", made.name, " and ", other.name, " are one folder, ",
                        made.path, ", into which an adapter with rewards writes"),
                    "give each dataset a folder of its own");
        }
    }
}

}  // namespace

const OwnKey<RewardsJob> prompts_key{read_prompts, write_prompts};
const OwnKey<RewardsJob> reward_stop_tokens_key{
    [](SectionReader& section, RewardsJob& job) { read_stop_tokens(section, job.stop_tokens); },
    [](KeyWriter& out, const RewardsJob& job) { write_stop_tokens(out, job.stop_tokens); }};

std::optional<DatasetId> dataset_named(SectionReader& section, const char* key) {
    const YamlNode* node = section.find(key);
    if (node == nullptr) return std::nullopt;
    if (node->kind == YamlNode::Kind::list) {
        section.problem(node->place, key, "is a list, but an adapter has one dataset",
                        "make a dataset of several files: datasets: {both: {path: [a.jsonl, "
                        "b.jsonl]}}");
        return std::nullopt;
    }
    const ReadContext& context = section.context();
    std::string name;
    section.read(key, name);
    if (node->kind != YamlNode::Kind::scalar || context.datasets.empty()) return std::nullopt;
    const auto found = context.ids.find(name);
    if (found != context.ids.end()) return found->second;
    section.problem(node->place, key, "'" + name + "' is not in datasets",
                    context.log.hint_among(name, context.datasets));
    return std::nullopt;
}

void check_rewards(SectionReader& section, const AdapterJob& job) {
    if (!job.rewards.wanted()) return;
    const auto refuse = [&](const char* key, const std::string& what, const std::string& hint) {
        section.problem(section.place_of(key), key, what, hint);
    };
    if (!job.loss.is_of_rollouts()) {
        refuse("rewards",
               cat("does not go with loss: ", word_of(loss_words, job.loss.loss),
                   ", which has no advantages"),
               "use loss: grpo, ppo, cispo, dro or importance_sampling");
    }
    if (job.loss.has_reference()) {
        refuse("beta", "needs a reference, which jobs with rewards do not compute", "set beta: 0");
    }
    if (job.global_batch_size % job.rewards.group_size != 0) {
        refuse("global_batch_size",
               cat("is ", job.global_batch_size, ", no multiple of rewards.group_size ",
                   job.rewards.group_size),
               "a step has whole groups: give prompts x group_size");
    }
    if (!job.max_steps) {
        refuse("max_steps", "is missing", "say after how many steps the adapter with rewards ends");
    }
    if (job.trial)
        refuse("rewards", "cannot be given to trials of a sweep",
               "give it to an adapter in the list adapters");
}

void own_rollouts(Job& job, const Place& place, ProblemLog& log) {
    for (AdapterJob& adapter : job.adapters) {
        RewardsJob& rewards = adapter.rewards;
        if (!rewards.wanted() || index(adapter.dataset) >= job.datasets.size()) continue;
        const std::string where = cat("adapters.", adapter.name, ".rewards.prompts");
        if (!rewards.prompts) {
            DatasetJob rollouts;
            rollouts.name = adapter.name + ".rollouts";
            rollouts.path = cat(job.run.dir, "/rollouts/", adapter.name, "/");
            rollouts.max_seq_len = job.dataset(adapter.dataset).max_seq_len;
            for (const DatasetJob& other : job.datasets) {
                if (other.name != rollouts.name) continue;
                log.add(place, cat(where, ": is missing, and there is a dataset ", other.name),
                        "choose another name for that dataset");
            }
            rewards.prompts = adapter.dataset;
            adapter.dataset = static_cast<DatasetId>(job.datasets.size());
            job.datasets.push_back(std::move(rollouts));
        } else if (!job.dataset(adapter.dataset).grows()) {
            log.add(place,
                    cat(where, ": is given, but the adapter's dataset ",
                        job.dataset(adapter.dataset).name, " is no folder"),
                    "leave it out, or give dataset a folder, as in path: rollouts/");
        }
        const DatasetJob& prompts = job.dataset(*rewards.prompts);
        if (prompts.grows()) {
            log.add(place,
                    cat(where, ": ", prompts.name, " is a folder of rollouts and has no prompts"),
                    "give a dataset with a file");
        }
        job.datasets[index(adapter.dataset)].made_in_job = true;
    }
    check_own_folders(job, place, log);
    for (std::size_t i = 0; i < job.datasets.size(); ++i) {
        const auto id = static_cast<DatasetId>(i);
        const auto& all = job.adapters;
        job.datasets[i].only_prompts =
            std::any_of(all.begin(), all.end(),
                        [id](const AdapterJob& a) { return a.rewards.prompts == id; }) &&
            std::none_of(all.begin(), all.end(),
                         [id](const AdapterJob& a) { return a.dataset == id; });
    }
}

}  // namespace loratrain
