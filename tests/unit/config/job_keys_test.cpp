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
    const std::string section = key.section;
    const std::string value = cat(key.key, ": {x: 1}");
    const auto entries = [&](const char* name, const std::string& rest) {
        return section == name ? cat(value, rest.empty() ? "" : ", ", rest) : rest;
    };
    const auto first = [&](const char* name, const char* required, const std::string& rest) {
        return section == name && std::string(key.key) == required ? value : entries(name, rest);
    };
    const std::string residency =
        section == "residency" ? cat(", residency: {", value, "}") : std::string();
    std::string text =
        cat("model: {", first("model", "weights", "weights: b"), residency, "}\nrun: {",
            first("run", "dir", "dir: o"), "}\ndatasets: {d: {",
            section == "file"
                ? cat("files: [{", std::string(key.key) == "path" ? "" : "path: p, ", value, "}]")
            : std::string(key.key) == "files" ? value
                                              : first("datasets", "path", "path: p"),
            "}}\nadapters: [{", first("adapters", "name", "name: a"), "}]\n");
    for (const char* name : {"parallel", "schedule", "checkpoint", "eval", "export", "logging"}) {
        if (section == name) text += cat(name, ": {", value, "}\n");
    }
    if (section == "sweep") {
        const bool is_space = std::string(key.key) == "space";  // a mapping, but no empty one
        text += is_space ? "sweep: {space: {}}\n" : cat("sweep: {", value, ", space: {r: [1]}}\n");
    }
    if (section == "space") text += cat("sweep: {space: {r: {", value, "}}}\n");
    if (section == "kwargs") {
        text += cat("defaults: {lr_scheduler_kwargs: {", value, "}}\n");
    }
    if (section == "between_hosts") text += cat("cluster: {between_hosts: {", value, "}}\n");
    if (section == "generate") text += cat("eval: {generate: {", value, "}}\n");
    if (section == "offload") text += cat("parallel: {offload: {", value, "}}\n");
    if (section == "recompute") text += cat("parallel: {recompute: {", value, "}}\n");
    if (section == "deployment") text += cat("parallel: {deployment: [{", value, "}]}\n");
    return text;
}

TEST_F(JobKeys, AllAreRead) {
    for (const JobKey& key : job_keys()) {
        const std::string name = key.key;
        if (std::string(key.section).empty()) continue;
        if (name == "rank_pattern" || name == "alpha_pattern") continue;  // are mappings
        if (name == "lr_scheduler_kwargs" || name == "residency") continue;
        if (name == "generate" || name == "recompute" || name == "offload") continue;
        if (name == "between_hosts") continue;
        const std::string text = job_with_mapping(key);
        bool named = false;
        for (const Problem& problem : problems(text)) {
            named = named || problem.what.find(cat(".", key.key, ": is")) != std::string::npos;
        }
        EXPECT_TRUE(named) << text;
    }
}

TEST_F(JobKeys, AreThoseOfTheJobThatIsWritten) {
    ProblemLog log;
    const auto root = parse_yaml(to_yaml(read(minimal_job)), {"resolved", false}, log);
    ASSERT_TRUE(root);
    for (const YamlNode& section : root->children) {
        EXPECT_TRUE(is_job_key("", section.key)) << section.key;
        for (const YamlNode& child : section.children) {
            if (child.kind != YamlNode::Kind::map) {
                EXPECT_TRUE(is_job_key(section.key, child.key)) << child.key;
                continue;
            }
            for (const YamlNode& key : child.children) {
                EXPECT_TRUE(is_job_key(section.key, key.key)) << key.key;
            }
        }
    }
}

TEST_F(JobKeys, SectionsComeFromPaths) {
    EXPECT_EQ(key_section(""), "");
    EXPECT_EQ(key_section("model"), "model");
    EXPECT_EQ(key_section("defaults"), "adapters");
    EXPECT_EQ(key_section("adapters[3]"), "adapters");
    EXPECT_EQ(key_section("datasets.v1.0"), "datasets");
    EXPECT_EQ(key_section("parallel"), "parallel");
    EXPECT_EQ(key_section("adapters.a.lr_scheduler_kwargs"), "kwargs");
    EXPECT_EQ(key_section("parallel.deployment[2]"), "deployment");
    EXPECT_EQ(key_section("eval.generate"), "generate");
}

TEST_F(JobKeys, ForeignOnesAreNotOursAndPointToWhatIs) {
    for (const JobKey& key : job_keys()) {
        EXPECT_TRUE(foreign_key(key.key, key.section) == nullptr ||
                    std::string(foreign_key(key.key, key.section)->section) != key.section)
            << key.section << "." << key.key;
        for (const std::string& name : names_elsewhere(key.section, key.key)) {
            const ForeignKey* foreign = foreign_key(name, key.section);
            ASSERT_NE(foreign, nullptr) << name;
            EXPECT_EQ(foreign->ours, std::string(key.key));
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
        {"trainable_token_indices", "embed_tokens"},
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
        std::ifstream file(LORATRAIN_SOURCE_DIR "/src/config/foreign_keys.cpp");
        std::ostringstream table;
        table << file.rdbuf();
        EXPECT_EQ(table.str().find(old), std::string::npos) << old;
    }
}

TEST_F(JobKeys, TheTableOfThePageIsWhatTheProgramPrints) {
    std::ifstream file(LORATRAIN_SOURCE_DIR "/jobs/README.md");
    std::ostringstream page;
    page << file.rdbuf();
    EXPECT_NE(page.str().find("\n\n" + keys_text()), std::string::npos)
        << "paste what loratrain --keys prints into jobs/README.md";
}

TEST_F(JobKeys, TheTableHasDefaultsMeaningsAndOtherNames) {
    const std::string text = keys_text();
    for (const char* row : {"| `weights`                  | required     |",
                            "| `learning_rate`            | 2.0e-04 ", "| `lr` |",
                            "| **datasets.NAME** | | | |", "`per_device_train_batch_size`"}) {
        EXPECT_NE(text.find(row), std::string::npos) << row << "\n" << text;
    }
}

}  // namespace
}  // namespace loratrain
