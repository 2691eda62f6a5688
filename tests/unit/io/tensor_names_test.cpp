#include "io/tensor_names.h"

#include <gtest/gtest.h>

#include "base/text.h"
#include "io/weights/base_weights.h"
#include "support/small_model.h"

namespace loratrain {
namespace {

TEST(TensorNames, OfTheBaseModel) {
    EXPECT_TRUE(is_stored_table_name(activation_constant_name(2, "beta")));
    EXPECT_EQ(module_path(3, Linear::qkv), "model.layers.3.self_attn.qkv_proj");
    EXPECT_EQ(module_path(3, Linear::gate_up), "model.layers.3.mlp.gate_up_proj");
    EXPECT_EQ(module_path(3, Linear::q), "model.layers.3.self_attn.q_proj");
    EXPECT_EQ(module_path(0, Linear::up), "model.layers.0.mlp.up_proj");
    EXPECT_EQ(weight_name(1, Linear::o), "model.layers.1.self_attn.o_proj.weight");
    EXPECT_EQ(bias_name(1, Linear::down), "model.layers.1.mlp.down_proj.bias");
}

TEST(TensorNames, TellWhatTheyStandFor) {
    ModelSpec spec = test::small_model(2);
    spec.attention().qkv_bias = true;
    spec.attention().qk_norm = true;
    int norms = 0;
    int biases = 0;
    int outputs = 0;
    for (const BaseTensor& tensor : base_tensors(spec)) {
        norms += is_norm_name(tensor.name) ? 1 : 0;
        biases += is_bias_name(tensor.name) ? 1 : 0;
        outputs += is_name_of(tensor.name, Linear::o) ? 1 : 0;
        EXPECT_FALSE(is_stored_table_name(tensor.name)) << tensor.name;
    }
    EXPECT_EQ(norms, 2 * 4 + 1);
    EXPECT_EQ(biases, 2 * 3);
    EXPECT_EQ(outputs, 2);
    EXPECT_TRUE(is_stored_table_name("model.layers.0.self_attn.rotary_emb.inv_freq"));
}

TEST(TensorNames, OfAdapters) {
    EXPECT_EQ(peft_tensor_name(3, Linear::o, lora_form().tensors[0]),
              "base_model.model.model.layers.3.self_attn.o_proj.lora_A.weight");
    EXPECT_EQ(peft_tensor_name(10, Linear::down, lora_form().tensors[1]),
              "base_model.model.model.layers.10.mlp.down_proj.lora_B.weight");
}

TEST(TensorNames, OfTextModelsInsideOfOthers) {
    const std::string layer = "layers.0.mlp.up_proj.weight";
    EXPECT_EQ(name_in_text_model("language_model.model." + layer), "model." + layer);
    EXPECT_EQ(name_in_text_model("model.language_model." + layer), "model." + layer);
    EXPECT_EQ(name_in_text_model("language_model.lm_head.weight"), "lm_head.weight");
    EXPECT_EQ(name_in_text_model("lm_head.weight"), "lm_head.weight");
    EXPECT_EQ(name_in_text_model("model." + layer), "model." + layer);
    EXPECT_EQ(name_in_text_model("model.embed_tokens.weight"), "model.embed_tokens.weight");
    EXPECT_EQ(name_in_text_model("model.visual.blocks.0.mlp.up_proj.weight"), "");
    EXPECT_EQ(name_in_text_model("visual.blocks.0.mlp.up_proj.weight"), "");
    EXPECT_EQ(name_in_text_model("vision_tower.vision_model.head.weight"), "");
    EXPECT_EQ(name_in_text_model("multi_modal_projector.mm_soft_emb_norm.weight"), "");
    const std::string text = "base_model.model.model.layers.3.self_attn.q_proj.lora_A.weight";
    const std::string wrapped =
        "base_model.model.model.language_model.layers.3.self_attn.q_proj.lora_A.weight";
    ModelSpec model;
    EXPECT_FALSE(has_other_names(model));
    EXPECT_EQ(peft_name_in_files(model, text), text);
    model.wrapper = "gemma3";
    EXPECT_TRUE(has_other_names(model));
    EXPECT_EQ(peft_name_in_files(model, text), wrapped);
    EXPECT_EQ(peft_name_of_files(model, wrapped), text);
    EXPECT_EQ(peft_name_of_files(model,
                                 "base_model.model.language_model.model.layers.3.self_attn."
                                 "q_proj.lora_A.weight"),
              text);
    EXPECT_EQ(peft_name_in_files(model, "base_model.model.lm_head.lora_B.weight"),
              "base_model.model.lm_head.lora_B.weight");
    EXPECT_EQ(peft_name_of_files(model, "base_model.vera_A"), "base_model.vera_A");
    EXPECT_EQ(name_in_files(model, "q_proj"), "q_proj");
}

TEST(TensorNames, OfExpertsThatFilesCallOtherwise) {
    ModelSpec model;
    ExpertSpec experts{8, 2, 16};
    experts.names = ExpertNames::mixtral;
    model.descriptions.front().mlp = experts;
    EXPECT_TRUE(has_other_names(model));
    const auto both_ways = [&](const std::string& own, const std::string& in_files) {
        EXPECT_EQ(name_in_files(model, own), in_files);
        EXPECT_EQ(name_of_files(model, in_files), own);
        EXPECT_EQ(peft_name_in_files(model, "base_model.model." + own),
                  "base_model.model." + in_files);
    };
    both_ways("model.layers.3.mlp.experts.7.up_proj.weight",
              "model.layers.3.block_sparse_moe.experts.7.w3.weight");
    both_ways("model.layers.3.mlp.gate.weight", "model.layers.3.block_sparse_moe.gate.weight");
    both_ways("model.layers.3.self_attn.q_proj", "model.layers.3.self_attn.q_proj");
    both_ways("gate_proj", "w1");
    EXPECT_EQ(name_of_files(model, "model.layers.3.mlp.experts.7.w2"),
              "model.layers.3.mlp.experts.7.down_proj");
    EXPECT_EQ(expert_in_name("model.layers.3.block_sparse_moe.experts.7.w2"), 7);
    std::get<ExpertSpec>(model.descriptions.front().mlp).names = ExpertNames::glm4_moe;
    both_ways("model.layers.3.mlp.shared_expert.up_proj.weight",
              "model.layers.3.mlp.shared_experts.up_proj.weight");
    both_ways("model.layers.3.mlp.experts.7.up_proj", "model.layers.3.mlp.experts.7.up_proj");
    std::get<ExpertSpec>(model.descriptions.front().mlp).names = ExpertNames::gpt_oss;
    both_ways("model.layers.3.mlp.gate.bias", "model.layers.3.mlp.router.bias");
    both_ways("model.layers.3.mlp.experts.gate_up_bias",
              "model.layers.3.mlp.experts.gate_up_proj_bias");
    both_ways("model.layers.3.mlp.experts.down_bias", "model.layers.3.mlp.experts.down_proj_bias");
}

TEST(TensorNames, OfExpertsThatFilesCallBySeveralWords) {
    ModelSpec model;
    ExpertSpec experts{8, 2, 16};
    experts.names = ExpertNames::granitemoe;
    model.descriptions.front().mlp = experts;
    const std::string block = "model.layers.3.block_sparse_moe.";
    EXPECT_EQ(name_in_files(model, "model.layers.3.mlp.gate.weight"),
              block + "router.layer.weight");
    for (const auto& [in_files, own] : {std::pair{"router.layer.weight", "gate.weight"},
                                        {"router.weight", "gate.weight"},
                                        {"routers.weight", "routers.weight"},
                                        {"input_linear.weight", "experts.gate_up_proj"},
                                        {"output_linear.weight", "experts.down_proj"},
                                        {"experts.gate_up_proj", "experts.gate_up_proj"},
                                        {"experts.down_proj", "experts.down_proj"},
                                        {"input_linear.weights", "input_linear.weights"}}) {
        EXPECT_EQ(name_of_files(model, block + in_files), cat("model.layers.3.mlp.", own));
    }
    EXPECT_EQ(name_of_files(model, "model.layers.3.self_attn.q_proj"),
              "model.layers.3.self_attn.q_proj");
}

}  // namespace
}  // namespace loratrain
