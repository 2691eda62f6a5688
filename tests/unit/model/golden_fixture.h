#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "backend/make_backend.h"
#include "config/job_yaml.h"
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

/// Those that are compared stage by stage; the others are in tests/system alone.
inline std::vector<std::string> compared_families() {
    return golden_families({"apertus", "deepseek_v3", "ernie4_5_bias", "glm4", "glm4_moe",
                            "glm4_moe_lite", "gpt_oss", "gpt_oss_mxfp4", "granitemoe", "mixtral",
                            "phi3", "phi3_window", "qwen2_moe", "qwen3_moe", "qwen3_moe_dense"});
}

/// A golden family on one stage: base imported, all adapters in one job, planned; of golden.json,
/// or of another file of the family those that start from a directory.
struct GoldenStage {
    /// `start`: "init" or "final", the PEFT directories the adapters start from.
    GoldenStage(const std::string& family, const std::string& start, std::int64_t microbatch_tokens,
                const std::string& list = "golden.json") {
        const std::string base = folder.file("base.h5");
        import_hf(golden_path(family) + "/base", base, {.force = true});
        weights = open_base_weights(base);
        const auto golden = nlohmann::json::parse(std::ifstream(golden_path(family) + "/" + list));
        nlohmann::json document = {{"model", {{"weights", base}}},
                                   {"run", {{"dir", folder.file("run")}}},
                                   {"parallel", {{"microbatch_tokens", microbatch_tokens}}}};
        for (const auto& [name, facts] : golden.at("adapters").items()) {
            const std::string dir = golden_path(family) + "/adapters/" + name;
            if (!std::filesystem::exists(dir + "/init")) continue;
            nlohmann::json adapter = keys_of(facts);
            adapter.update({{"name", name}, {"dataset", name}, {"init_from", dir + "/" + start}});
            document["adapters"].push_back(adapter);
            document["datasets"][name] = {{"path", dir + "/data.jsonl"}, {"shuffle", false}};
        }
        std::ofstream(folder.file("job.yaml")) << document;
        job = read_job(folder.file("job.yaml"), {});
        for (const AdapterJob& adapter : job.adapters) {
            const DatasetJob& dataset = job.datasets[index(adapter.dataset)];
            files.train.emplace_back(dataset.path, dataset, weights->spec().vocab_size);
            files.eval.emplace_back();
            infos.push_back({files.train.back().infos(), {}});
        }
        Cluster cluster;
        plan = make_plan(job, weights->spec(), infos, cluster);
        backend = make_backend("cpu", {1, 0});
        stage = std::make_unique<Stage>(job, only_replica(plan), 0, *weights, *backend);
    }

    /// Those of the job that matter here.
    static nlohmann::json keys_of(const nlohmann::json& facts) {
        if (facts.contains("keys")) return facts.at("keys");
        nlohmann::json keys;
        for (const char* key :
             {"r", "lora_alpha", "use_rslora", "global_batch_size", "target_modules"}) {
            keys[key] = facts.at(key);
        }
        return keys;
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
