#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "backend/make_backend.h"
#include "data/loader.h"
#include "io/adapters/adapter_file.h"
#include "io/weights/base_weights.h"
#include "io/weights/import_hf.h"
#include "model/stage.h"
#include "plan/deploy/make_plan.h"
#include "plan/schedule/plan_window.h"
#include "support/files.h"
#include "support/golden_path.h"

namespace loratrain::test {

inline const std::vector<std::string>& golden_families() {
    static const std::vector<std::string> families{
        "llama",   "qwen2",     "qwen3",          "mistral",      "smollm3",
        "granite", "seed_oss",  "mistral_window", "qwen2_window", "qwen3_yarn",
        "olmo2",   "olmo3",     "gemma2",         "gemma3_text",  "ministral3",
        "gemma3",  "llama_nf4", "llama_int8",     "llama_e4m3",   "llama_e4m3_block"};
    return families;
}

/// A golden family on one stage: base imported, all adapters in one job, planned.
struct GoldenStage {
    /// `start`: "init" or "final", the PEFT directories the adapters start from.
    GoldenStage(const std::string& family, const std::string& start,
                std::int64_t microbatch_tokens) {
        const std::string base = folder.file("base.h5");
        import_hf(golden_path(family) + "/base", base, {.force = true});
        weights = open_base_weights(base);
        const auto golden =
            nlohmann::json::parse(std::ifstream(golden_path(family) + "/golden.json"));
        for (const auto& [name, facts] : golden.at("adapters").items()) {
            add_adapter(family, name, start, facts);
        }
        job.parallel.microbatch_tokens = microbatch_tokens;
        Cluster cluster;
        plan = make_plan(job, weights->spec(), infos, cluster);
        backend = make_backend("cpu", {1, 0});
        stage = std::make_unique<Stage>(job, only_replica(plan), 0, *weights, *backend);
    }

    void add_adapter(const std::string& family, const std::string& name, const std::string& start,
                     const nlohmann::json& facts) {
        const std::string dir = golden_path(family) + "/adapters/" + name;
        DatasetJob dataset;
        dataset.name = name;
        dataset.path = dir + "/data.jsonl";
        dataset.shuffle = false;
        AdapterJob adapter;
        adapter.name = name;
        adapter.dataset = static_cast<DatasetId>(job.datasets.size());
        adapter.r = facts.at("r").get<int>();
        adapter.lora_alpha = facts.at("lora_alpha").get<double>();
        adapter.use_rslora = facts.at("use_rslora").get<bool>();
        adapter.global_batch_size = facts.at("global_batch_size").get<int>();
        adapter.init_from = dir + "/" + start;
        for (int i = 0; i < linear_count; ++i) {
            const auto& targets = facts.at("target_modules");
            const std::string module = module_name(static_cast<Linear>(i));
            adapter.targets[static_cast<std::size_t>(i)] =
                std::find(targets.begin(), targets.end(), module) != targets.end();
        }
        files.train.emplace_back(dataset.path, dataset, weights->spec().vocab_size);
        files.eval.emplace_back();
        infos.push_back({files.train.back().infos(), {}});
        job.datasets.push_back(dataset);
        job.adapters.push_back(adapter);
    }

    test::TempDir folder;
    Job job;
    std::unique_ptr<WeightSource> weights;
    DatasetFiles files;
    std::vector<DatasetInfo> infos;
    Plan plan;
    std::unique_ptr<Backend> backend;
    std::unique_ptr<Stage> stage;
};

/// |a - b| / |b| in the Frobenius norm.
inline double relative_difference(const std::vector<float>& a, const std::vector<float>& b) {
    double difference = 0.0;
    double size = 0.0;
    for (std::size_t i = 0; i < b.size(); ++i) {
        difference += std::pow(static_cast<double>(a[i]) - b[i], 2);
        size += std::pow(static_cast<double>(b[i]), 2);
    }
    return std::sqrt(difference / size);
}

}  // namespace loratrain::test
