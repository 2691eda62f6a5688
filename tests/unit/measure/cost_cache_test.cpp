#include "measure/cost_cache.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <utility>

#include "base/error.h"
#include "base/text.h"
#include "config/model_presets.h"
#include "io/files.h"
#include "support/files.h"

namespace loratrain {
namespace {

CostModel some_costs() {
    CostModel costs;
    costs.layer_forward = {1e-5, 0.1 / 3.0, 1e-12, 7e-5};
    costs.layer_backward = {2e-5, 0.2, 0.0};
    costs.first_layer_saving = 0.1;
    costs.head = {0.0, 1e-7, 0.0};
    costs.host = {{1e-4, 1e-6}, {2e-4, 2e-6},         {3e-5, 3e-6},  {4e-5, 0.0},
                  5e-5,         {0.05, 0.5, 3, 2e-5}, {0.01, 0.2, 4}};
    costs.step_fixed = 3e-6;
    costs.step_per_parameter = 4e-11;
    costs.message.fixed = 5e-6;
    costs.message.per_byte = 6e-12;
    costs.layer_transfer = 0.1 / 7.0;
    costs.full_speed_ranks = 1.5;
    costs.ranks_per_host = 4;
    costs.source = "measured on \"cpu\"";
    return costs;
}

void expect_equal(const CostModel& a, const CostModel& b) {
    EXPECT_EQ(costs_to_json({{"k", a}}), costs_to_json({{"k", b}}));
}

class CostCache : public ::testing::Test {
  protected:
    test::TempDir folder_;
    std::string path_ = folder_.file("a/costs.json");
};

TEST_F(CostCache, KeepsCostsToTheBit) {
    keep_costs(path_, "one", some_costs());
    CostModel other = some_costs();
    other.step_fixed = 1.0;
    other.between_hosts = {2e-5, 1e-9 / 3.0};
    keep_costs(path_, "two", other);
    expect_equal(*find_costs(path_, "one"), some_costs());
    EXPECT_EQ(find_costs(path_, "one")->layer_forward.per_token, 0.1 / 3.0);
    EXPECT_EQ(find_costs(path_, "one")->layer_forward.per_segment, 7e-5);
    EXPECT_EQ(find_costs(path_, "two")->step_fixed, 1.0);
    EXPECT_FALSE(find_costs(path_, "one")->between_hosts);
    EXPECT_EQ(find_costs(path_, "two")->link(false).fixed, 2e-5);
    EXPECT_EQ(find_costs(path_, "two")->link(false).per_byte, 1e-9 / 3.0);
    EXPECT_EQ(find_costs(path_, "two")->first_layer_saving, 0.1);
    EXPECT_EQ(find_costs(path_, "two")->full_speed_ranks, 1.5);
    EXPECT_EQ(find_costs(path_, "two")->layer_transfer, 0.1 / 7.0);
    EXPECT_EQ(find_costs(path_, "two")->ranks_per_host, 4);
    EXPECT_EQ(find_costs(path_, "two")->host.layer_backward.fixed, 2e-4);
    EXPECT_EQ(find_costs(path_, "two")->host.forward.per_segment, 3e-6);
    EXPECT_EQ(find_costs(path_, "two")->host.head, 5e-5);
    EXPECT_EQ(find_costs(path_, "two")->host.new_rows.each, 0.05);
    EXPECT_EQ(find_costs(path_, "two")->host.new_rows.first, 0.5);
    EXPECT_EQ(find_costs(path_, "two")->host.new_rows.per_row, 2e-5);
    EXPECT_EQ(find_costs(path_, "two")->host.new_rows.met, 0);  // by another process
    EXPECT_EQ(find_costs(path_, "two")->host.new_targets.first, 0.2);
    EXPECT_FALSE(find_costs(path_, "three"));
    EXPECT_FALSE(find_costs(folder_.file("none.json"), "one"));
}

TEST_F(CostCache, DamagedFilesAreReplaced) {
    keep_costs(path_, "one", some_costs());
    const std::string text = read_text(path_);
    for (const std::string& damaged : {text.substr(0, text.size() / 2), std::string("[]"),
                                       std::string(), std::string("{\"format\": \"x\"}")}) {
        write_text_atomic(path_, damaged);
        EXPECT_THROW(costs_from_json(damaged, "here"), InputError);
        EXPECT_FALSE(find_costs(path_, "one"));
    }
    keep_costs(path_, "one", some_costs());
    EXPECT_TRUE(find_costs(path_, "one"));
}

TEST_F(CostCache, FilesOfVersionsBeforeAreReplaced) {
    std::string text = costs_to_json({{"one", some_costs()}});
    text.replace(text.find("loratrain-costs-3"), 17, "loratrain-costs-2");
    EXPECT_THROW(costs_from_json(text, "here"), InputError);
    write_text_atomic(folder_.file("costs.json"), text);
    EXPECT_FALSE(find_costs(folder_.file("costs.json"), "one"));
    keep_costs(folder_.file("costs.json"), "two", some_costs());
    EXPECT_TRUE(find_costs(folder_.file("costs.json"), "two"));
}

TEST_F(CostCache, UnknownCostsAreRefused) {
    std::string text = costs_to_json({{"one", some_costs()}});
    text.insert(text.find("\"new_rows\""), "\"new_attention\": 0.06, ");
    EXPECT_THROW(costs_from_json(text, "here"), InputError);
}

TEST_F(CostCache, NegativeCostsAreRefused) {
    CostModel wrong = some_costs();
    wrong.head.per_token = -1.0;
    EXPECT_THROW(costs_from_json(costs_to_json({{"k", wrong}}), "here"), InputError);
    wrong = some_costs();
    wrong.host.forward.per_segment = -1.0;
    EXPECT_THROW(costs_from_json(costs_to_json({{"k", wrong}}), "here"), InputError);
}

TEST_F(CostCache, UnwritableIsNoError) {
    keep_costs("", "one", some_costs());
    write_text_atomic(folder_.file("file"), "");
    EXPECT_NO_THROW(keep_costs(folder_.file("file/costs.json"), "one", some_costs()));
}

TEST_F(CostCache, IsWhereTheEnvironmentSays) {
    setenv("LORATRAIN_COST_CACHE", "/x/y.json", 1);
    EXPECT_EQ(cost_cache_path(), "/x/y.json");
    setenv("LORATRAIN_COST_CACHE", "", 1);
    EXPECT_EQ(cost_cache_path(), "");
    unsetenv("LORATRAIN_COST_CACHE");
    setenv("XDG_CACHE_HOME", "/c", 1);
    EXPECT_EQ(cost_cache_path(), "/c/loratrain/costs.json");
    unsetenv("XDG_CACHE_HOME");
    setenv("HOME", "/h", 1);
    EXPECT_EQ(cost_cache_path(), "/h/.cache/loratrain/costs.json");
}

TEST(CostKey, TellsModelsDevicesAndAdaptersApart) {
    Job job;
    job.adapters.emplace_back();
    Plan plan;
    plan.model = *model_preset("llama-3.1-8b");
    plan.adapters.emplace_back();
    plan.first_admitted.push_back(AdapterId{0});
    plan.replicas.resize(1);
    plan.replicas[0].pad_columns = 16;
    const std::string key = cost_key(job, only_replica(plan), "H200", 8);
    EXPECT_EQ(cost_key(job, only_replica(plan), "H200", 8), key);
    EXPECT_NE(cost_key(job, only_replica(plan), "H100", 8), key);
    EXPECT_NE(cost_key(job, only_replica(plan), "H200", 4), key);
    job.adapters[0].r = 32;
    EXPECT_NE(cost_key(job, only_replica(plan), "H200", 8), key);
    job.adapters[0].r = 16;
    job.adapters[0].form = residual_start_form(Initial::olora);
    EXPECT_NE(cost_key(job, only_replica(plan), "H200", 8), key);
    job.adapters[0].form = lora_form();
    plan.compute = DType::bf16;
    EXPECT_NE(cost_key(job, only_replica(plan), "H200", 8), key);
    plan.compute = DType::f32;
    plan.weights = WeightFormat::bf16;
    EXPECT_NE(cost_key(job, only_replica(plan), "H200", 8), key);
    plan.weights = WeightFormat::f32;
    plan.longest_sample = 16384;
    EXPECT_EQ(cost_key(job, only_replica(plan), "H200", 8), key);
    plan.backend = BackendKind::cuda;
    const std::string of_long_samples = cost_key(job, only_replica(plan), "H200", 8);
    EXPECT_NE(of_long_samples, key);
    plan.longest_sample = 8193;
    EXPECT_EQ(cost_key(job, only_replica(plan), "H200", 8), of_long_samples);
    plan.longest_sample = 4096;
    EXPECT_EQ(cost_key(job, only_replica(plan), "H200", 8), key);
    plan.model.quantization = {WeightFormat::nf4, SourceType::bf16};
    EXPECT_NE(cost_key(job, only_replica(plan), "H200", 8), key);
    plan.model.quantization.reset();
    plan.model.layers = 3;
    EXPECT_EQ(cost_key(job, only_replica(plan), "H200", 8), key);
    plan.replicas[0].tensor = 2;
    EXPECT_NE(cost_key(job, only_replica(plan), "H200", 8), key);
    plan.replicas[0].tensor = 1;
    const std::int64_t vocabulary = std::exchange(plan.model.vocab_size, 3);
    EXPECT_NE(cost_key(job, only_replica(plan), "H200", 8), key);
    plan.model.vocab_size = vocabulary;
    plan.model.attention().qk_norm = true;
    EXPECT_NE(cost_key(job, only_replica(plan), "H200", 8), key);
    plan.model.attention().qk_norm = false;
    plan.model.norms().placement = NormPlacement::both;
    EXPECT_NE(cost_key(job, only_replica(plan), "H200", 8), key);
}

}  // namespace
}  // namespace loratrain
