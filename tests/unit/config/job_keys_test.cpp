#include "config/job_keys.h"

#include <fstream>
#include <sstream>

#include "config/foreign_keys.h"
#include "test_paths.h"
#include "unit/config/job_files.h"

namespace loratrain {
namespace {

class JobKeys : public JobFiles {};

/// A job in which `key` is a mapping, which no key is.
std::string job_with_mapping(const JobKey& key) {
    const std::string value = key.key + ": {x: 1}";
    const auto first = [&](const char* section, const char* required, const std::string& rest) {
        if (key.section != section) return rest;
        return key.key == required ? value : cat(value, ", ", rest);
    };
    const bool of_file = key.section == "datasets.NAME.files[0]";
    const bool of_residency = key.section == "model.residency";
    std::string text =
        cat("model: {", first("model", "weights", "weights: b"),
            of_residency ? cat(", residency: {", value, "}") : "", "}\nrun: {",
            first("run", "dir", "dir: o"), "}\ndatasets: {d: {",
            of_file ? cat("files: [{", key.key == "path" ? "" : "path: p, ", value, "}]")
            : key.key == "files" ? value
                                 : first(dataset_section, "path", "path: p"),
            "}}\nadapters: [{", first(adapter_section, "name", "name: a"), "}]\n");
    for (const char* name : {"parallel", "schedule", "checkpoint", "eval", "export", "logging"}) {
        if (key.section == name) text += cat(name, ": {", value, "}\n");
    }
    if (key.section == "sweep") {
        const bool is_space = key.key == "space";  // a mapping, but no empty one
        text += is_space ? "sweep: {space: {}}\n" : cat("sweep: {", value, ", space: {r: [1]}}\n");
    }
    const struct {
        const char* section;
        const char* before;
        const char* after;
    } inside[] = {
        {"sweep.space.KEY", "sweep: {space: {r: {", "}}}"},
        {"lr_scheduler_kwargs", "defaults: {lr_scheduler_kwargs: {", "}}"},
        {"rewards", "defaults: {rewards: {", "}}"},
        {"cluster.between_hosts", "cluster: {between_hosts: {", "}}"},
        {"eval.generate", "eval: {generate: {", "}}"},
        {"parallel.offload", "parallel: {offload: {", "}}"},
        {"parallel.recompute", "parallel: {recompute: {", "}}"},
        {"parallel.deployment[0]", "parallel: {deployment: [{", "}]}"},
    };
    for (const auto& [section, before, after] : inside) {
        if (key.section == section) text += cat(before, value, after, "\n");
    }
    return text;
}

TEST_F(JobKeys, AllAreRead) {
    for (const JobKey& key : job_keys()) {
        const std::string& name = key.key;
        if (key.section.empty()) continue;
        if (name == "rank_pattern" || name == "alpha_pattern") continue;  // are mappings
        if (name == "lr_scheduler_kwargs" || name == "residency") continue;
        if (name == "generate" || name == "recompute" || name == "offload") continue;
        if (name == "between_hosts" || name == "rewards") continue;
        const std::string text = job_with_mapping(key);
        bool named = false;
        for (const Problem& problem : problems(text)) {
            named = named || problem.what.find(cat(".", key.key, ": is")) != std::string::npos;
        }
        EXPECT_TRUE(named) << text;
    }
}

/// The list and the resolved job are of the same visitor; sections are named in both.
TEST_F(JobKeys, AreThoseOfTheJobThatIsWritten) {
    ProblemLog log;
    const auto root = parse_yaml(to_yaml(read(minimal_job)), {"resolved", false}, log);
    ASSERT_TRUE(root);
    for (const YamlNode& section : root->children) {
        EXPECT_NE(find_job_key("", section.key), nullptr) << section.key;
        const bool items = section.key == "datasets" || section.key == "adapters";
        const char* heading = section.key == "datasets" ? dataset_section : adapter_section;
        for (const YamlNode& key : (items ? section.children[0] : section).children) {
            EXPECT_NE(find_job_key(items ? heading : section.key, key.key), nullptr) << key.key;
        }
    }
}

TEST_F(JobKeys, SayWhatSweepsAndResumingDoWithThem) {
    const auto key = [](const char* section, const char* name) {
        const JobKey* found = find_job_key(section, name);
        return found == nullptr ? JobKey{} : *found;
    };
    EXPECT_EQ(key(adapter_section, "learning_rate").in_names, "lr");
    EXPECT_EQ(key(adapter_section, "beta").in_names, "beta-");
    for (const char* whole : {"r", "global_batch_size", "max_steps", "seed", "priority"}) {
        EXPECT_TRUE(key(adapter_section, whole).whole) << whole;
    }
    EXPECT_FALSE(key(adapter_section, "warmup_steps").whole);
    EXPECT_FALSE(key(adapter_section, "name").varies);
    EXPECT_EQ(key(adapter_section, "r").resume, Resume::refused);
    EXPECT_EQ(key(adapter_section, "max_steps").resume, Resume::longer);
    EXPECT_EQ(key("parallel", "recompute").resume, Resume::allowed);
    EXPECT_EQ(key("run", "backend").resume, Resume::same_backend);
}

TEST_F(JobKeys, ForeignOnesAreNotOursAndPointToWhatIs) {
    for (const JobKey& key : job_keys()) {
        EXPECT_TRUE(foreign_key(key.key, key.section) == nullptr ||
                    foreign_key(key.key, key.section)->section != key.section)
            << key.section << "." << key.key;
        for (const std::string& name : names_elsewhere(key.section, key.key)) {
            const ForeignKey* foreign = foreign_key(name, key.section);
            ASSERT_NE(foreign, nullptr) << name;
            EXPECT_EQ(foreign->ours, key.key);
            EXPECT_NE(answer_to(*foreign, "").find(key.key), std::string::npos);
        }
    }
}

/// Keys that answers name are ours, and none tells of what has been built since.
TEST_F(JobKeys, AnswersToForeignOnesAreOfThisProgram) {
    const struct {
        const char* key;
        const char* answer;
    } answers[] = {
        {"lr_min", "lr_scheduler_kwargs.min_lr: with lr_scheduler_type: cosine_with_min_lr"},
        {"cosine_min_lr_ratio", "lr_scheduler_kwargs.min_lr_rate"},
        {"stage", "here it is loss of an adapter"},
        {"adapter", "import-hf --quantize nf4|int8|fp8"},
        {"finetuning_type", "peft_type: vera"},
        {"loraplus_lr_embedding", "loraplus_lr_ratio does not go with embed_tokens"},
        {"target_parameters", "target_modules: [gate_proj, up_proj, down_proj]"},
        {"megatron_config", "parallel.deployment"},
        {"loftq_config", "init_lora_weights takes true, gaussian, pissa"},
        {"fp16", "fp8"},
        {"wandb_project", "scripts/export_metrics.py --wandb"},
        {"train_on_inputs", "--train-on all"},
        {"dataset_num_proc", "--workers N"},
    };
    for (const auto& [key, answer] : answers) {
        const ForeignKey* foreign = foreign_key(key, "defaults");
        ASSERT_NE(foreign, nullptr) << key;
        EXPECT_NE(answer_to(*foreign, "defaults").find(answer), std::string::npos)
            << key << ": " << answer_to(*foreign, "defaults");
    }
    for (const char* old : {"only plain LoRA", "schedules end at 0", "training is supervised"}) {
        std::ifstream file(LORATRAIN_SOURCE_DIR "/src/config/foreign_key_table.h");
        std::ostringstream table;
        table << file.rdbuf();
        EXPECT_EQ(table.str().find(old), std::string::npos) << old;
    }
}

TEST_F(JobKeys, TheTableOfThePageIsWhatTheProgramPrints) {
    std::ifstream file(LORATRAIN_SOURCE_DIR "/jobs/keys.md");
    std::ostringstream page;
    page << file.rdbuf();
    EXPECT_NE(page.str().find("\n\n" + keys_markdown(job_keys())), std::string::npos)
        << "paste what loratrain --keys --markdown prints into jobs/keys.md";
}

TEST_F(JobKeys, AreFoundByPartsOfTheirNames) {
    const auto names = [](const char* part) {
        std::vector<std::string> found;
        for (const JobKey& key : find_job_keys(part)) found.push_back(key.key);
        return found;
    };
    EXPECT_EQ(find_job_keys("").size(), job_keys().size());
    EXPECT_EQ(names("lora_al"), std::vector<std::string>{"lora_alpha"});
    EXPECT_EQ(names("LORA_AL"), std::vector<std::string>{"lora_alpha"});
    EXPECT_EQ(names("per_device_train"), std::vector<std::string>{"global_batch_size"});
    EXPECT_EQ(names("warmup_*"),
              (std::vector<std::string>{"warmup_steps", "warmup_ratio", "warmup_type"}));
    EXPECT_EQ(names("checkpoint.k*"), std::vector<std::string>{"keep"});
    EXPECT_EQ(names("logging").size(), 5U) << "the section and its keys";
    EXPECT_EQ(names("scheduler_kwargs"), std::vector<std::string>{"lr_scheduler_kwargs"});
    try {
        find_job_keys("lora_alhpa");
        FAIL();
    } catch (const InputError& error) {
        EXPECT_STREQ(error.what(),
                     "--keys: no key has 'lora_alhpa' in its name\n    did you mean lora_alpha?");
    }
}

TEST_F(JobKeys, FitATerminal) {
    std::istringstream lines(keys_text(job_keys()));
    for (std::string line; std::getline(lines, line);) EXPECT_LE(line.size(), 80U) << line;
    const std::string one = keys_text(find_job_keys("lora_alpha"));
    EXPECT_EQ(one.rfind("adapters, defaults:\n  lora_alpha, default ", 0), 0U) << one;
    EXPECT_NE(one.find("\n      elsewhere: alpha\n"), std::string::npos) << one;
}

TEST_F(JobKeys, TheTableHasDefaultsMeaningsAndOtherNames) {
    const std::string text = keys_markdown(job_keys());
    for (const char* row : {"| `weights`                  | required     |",
                            "| `learning_rate`            | 2.0e-04 ", "| `lr` |",
                            "| **datasets.NAME** | | | |", "`per_device_train_batch_size`"}) {
        EXPECT_NE(text.find(row), std::string::npos) << row << "\n" << text;
    }
}

}  // namespace
}  // namespace loratrain
