#include "io/adapters/exported_adapter.h"

#include <gtest/gtest.h>

#include "io/adapters/adapter_file.h"
#include "support/files.h"
#include "support/problems.h"
#include "support/small_model.h"

namespace loratrain::test {
namespace {

AdapterJob vera_job(std::uint64_t key) {
    AdapterJob adapter;
    adapter.name = "a";
    adapter.r = 2;
    adapter.targets = {true, false, false, false, false, false, false};
    adapter.peft_type = PeftType::vera;
    adapter.projection_prng_key = key;
    adapter.form = form_of(adapter);
    return adapter;
}

std::vector<NamedTensor> scales(const AdapterJob& adapter, const ModelSpec& model) {
    std::vector<NamedTensor> tensors;
    for (std::int64_t layer = 0; layer < model.layers; ++layer) {
        const std::string module = "base_model.model." + module_path(layer, Linear::q);
        const LinearShape shape = linear_shape(model, Linear::q);
        tensors.push_back({module + ".vera_lambda_d", {adapter.r}, {0.5F, 0.25F}});
        tensors.push_back({module + ".vera_lambda_b",
                           {shape.out},
                           std::vector<float>(static_cast<std::size_t>(shape.out), 1.0F)});
    }
    return tensors;
}

/// torch 2: Generator().manual_seed(7), empty(2, 3).uniform_(-sqrt(2), sqrt(2)), then empty(2, 2)
/// .uniform_(-sqrt(3), sqrt(3)).
TEST(VeraProjections, AreTorchsToTheBit) {
    ModelSpec model = small_model();
    model.hidden_size = 3;
    model.attention().heads = 1;
    model.attention().kv_heads = 1;
    model.attention().head_dim = 2;
    const auto projections = vera_projections(vera_job(7), model);
    ASSERT_EQ(projections.size(), 2U);
    EXPECT_EQ(projections[0].shape, (std::vector<std::int64_t>{2, 3}));
    EXPECT_EQ(projections[1].shape, (std::vector<std::int64_t>{2, 2}));
    EXPECT_EQ(projections[0].values,
              (std::vector<float>{0.0987758562F, -0.851913214F, 0.450318664F, 0.443752706F,
                                  -0.755864441F, -0.211958349F}));
    EXPECT_EQ(projections[1].values,
              (std::vector<float>{-1.01468372F, 0.449419945F, -0.466558516F, 1.2168293F}));
}

TEST(VeraProjections, AreAsLargeAsTheLargestTarget) {
    AdapterJob adapter = vera_job(0);
    adapter.targets = {false, true, false, false, false, false, true};
    const ModelSpec model = small_model();
    const LinearShape largest = largest_target(adapter, model);
    EXPECT_EQ(largest.in, model.dense().size);
    EXPECT_EQ(largest.out, std::max(model.hidden_size, model.attention().kv_size()));
    EXPECT_TRUE(vera_projections(AdapterJob{}, model).empty());
}

TEST(VeraProjections, GoIntoExportsAndAreCheckedThere) {
    const ModelSpec model = small_model();
    AdapterJob adapter = vera_job(7);
    const TempDir folder;
    write_adapter(folder.path(), adapter, model, "base", scales(adapter, model));
    const AdapterFile file(folder.path(), adapter, model);
    EXPECT_NO_THROW(file.check_values());
    EXPECT_EQ(file.read(1, Linear::q, adapter.form.tensors[0]), (std::vector<float>{0.5F, 0.25F}));
    EXPECT_TRUE(has(get(folder.file("adapter_config.json")), "\"projection_prng_key\": 7"));

    AdapterJob other = vera_job(8);
    const auto refusal = [&] {
        return problem_text([&] { AdapterFile(folder.path(), other, model).check_values(); });
    };
    EXPECT_TRUE(has(refusal(), "projection_prng_key is 7, the job has 8"));
    other = vera_job(7);
    other.r = 3;
    EXPECT_TRUE(has(refusal(), "r is 2, the job has 3"));
    other = AdapterJob{};
    EXPECT_TRUE(has(refusal(), "peft_type is \"VERA\", must be \"LORA\""));

    adapter.save_projection = false;
    write_adapter(folder.path(), adapter, model, "base", scales(adapter, model));
    EXPECT_NO_THROW(AdapterFile(folder.path(), adapter, model).check_values());
    std::vector<NamedTensor> changed = scales(adapter, model);
    for (NamedTensor& projection : vera_projections(vera_job(8), model)) {
        changed.push_back(std::move(projection));
    }
    write_adapter(folder.path(), adapter, model, "base", changed);
    other = adapter;
    EXPECT_TRUE(has(refusal(), "base_model.vera_A: is not what projection_prng_key 7 makes"));
}

}  // namespace
}  // namespace loratrain::test
