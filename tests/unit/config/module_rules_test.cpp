#include "config/module_rules.h"

#include <tuple>

#include "unit/config/job_files.h"

namespace loratrain {
namespace {

class ModuleRules : public JobFiles {
  protected:
    /// The first adapter of a job with these keys.
    AdapterJob adapter(const std::string& keys) const {
        return read(minimal_job + "defaults: {" + keys + "}\n").adapters[0];
    }
    std::vector<Problem> refused(const std::string& keys) const {
        return problems(minimal_job + "defaults: {" + keys + "}\n");
    }
    /// "0q 0v 1q": where it is, in so many layers.
    static std::string targets(const AdapterJob& adapter, std::int64_t layers) {
        std::string text;
        for (std::int64_t layer = 0; layer < layers; ++layer) {
            for (int i = 0; i < linear_count; ++i) {
                const auto linear = static_cast<Linear>(i);
                if (!has_linear(ModelSpec{}, linear)) continue;
                if (!adapter.targets_linear(layer, linear)) continue;
                const std::string name = module_name(linear);
                text += (text.empty() ? "" : " ") + std::to_string(layer) +
                        name.substr(0, name.find('_'));
            }
        }
        return text;
    }
};

TEST_F(ModuleRules, PlainKeysNeedNoTable) {
    EXPECT_FALSE(adapter("target_modules: [q_proj], exclude_modules: null, rank_pattern: {}, "
                         "layers_to_transform: null, layers_pattern: []")
                     .modules);
    EXPECT_EQ(targets(adapter("target_modules: [v_proj, q_proj]"), 2), "0q 0v 1q 1v");
}

TEST_F(ModuleRules, NamesMatchWholeOrBehindADot) {
    EXPECT_EQ(targets(adapter("target_modules: [0.self_attn.q_proj, mlp.up_proj]"), 2),
              "0q 0up 1up");
    EXPECT_EQ(targets(adapter("target_modules: [model.layers.1.mlp.down_proj]"), 12), "1down");
    EXPECT_EQ(targets(adapter("target_modules: [layers.1.mlp.down_proj, q_proj]"), 2),
              "0q 1q 1down");
}

TEST_F(ModuleRules, RegularExpressionsMatchWholeNames) {
    EXPECT_EQ(targets(adapter(R"(target_modules: '.*\.[0-1]\.self_attn\.(q|v)_proj')"), 12),
              "0q 0v 1q 1v");
    EXPECT_EQ(targets(adapter(R"(target_modules: '.*\d+.*up_proj')"), 1), "0up");
    expect_only(refused("target_modules: q_proj"), at(7),
                "defaults.target_modules: 'q_proj' is neither all-linear nor a list, and as a "
                "regular expression it matches no module",
                "must match whole names");
}

TEST_F(ModuleRules, ExcludedOnesGoFirst) {
    EXPECT_EQ(targets(adapter("target_modules: [q_proj, v_proj], exclude_modules: [1.self_attn."
                              "q_proj]"),
                      2),
              "0q 0v 1v");
    EXPECT_EQ(targets(adapter(R"(exclude_modules: '.*(self_attn|mlp\.[gu]).*')"), 2),
              "0down 1down");
}

TEST_F(ModuleRules, LayersMayBeChosen) {
    EXPECT_EQ(targets(adapter("target_modules: [q_proj], layers_to_transform: [0, 2]"), 4),
              "0q 2q");
    EXPECT_EQ(targets(adapter("target_modules: [q_proj], layers_to_transform: 3"), 5), "3q");
    EXPECT_EQ(targets(adapter("target_modules: [q_proj], layers_to_transform: 3, "
                              "layers_pattern: layers"),
                      5),
              "3q");
    expect_only(refused("layers_to_transform: 3, layers_pattern: [h, blocks]"), at(6),
                "adapters.a.target_modules: selects no linear layer of the model",
                "layers_pattern");
}

TEST_F(ModuleRules, PatternsGiveRanksAndAlphas) {
    const AdapterJob job = adapter(
        "r: 8, lora_alpha: 16, rank_pattern: {q_proj: 2, '1.self_attn.q_proj': 3, '.*k_proj': 64}, "
        "alpha_pattern: {'layers\\.1\\..*': 4}");
    EXPECT_EQ(job.rank(0, Linear::q), 2);
    EXPECT_EQ(job.rank(1, Linear::q), 2) << "the first that matches";
    EXPECT_EQ(job.rank(1, Linear::k), 64);
    EXPECT_EQ(job.rank(1, Linear::v), 8);
    EXPECT_EQ(job.largest_rank(), 64);
    EXPECT_EQ(job.scaling(0, Linear::q), 8.0);
    EXPECT_EQ(job.scaling(1, Linear::q), 2.0);
    EXPECT_EQ(job.scaling(1, Linear::v), 0.5);
}

TEST_F(ModuleRules, KeysOfAnAdapterReplaceThoseOfTheDefaults) {
    const Job job = read(
        "model: {weights: base.h5}\nrun: {dir: out}\ndatasets: {math: {path: m.jsonl}}\n"
        "defaults: {target_modules: [q_proj], layers_to_transform: [1], rank_pattern: {q_proj: "
        "2}}\n"
        "adapters: [{name: a}, {name: b, layers_to_transform: null}, {name: c, r: 3,\n"
        "            rank_pattern: {}, layers_to_transform: [0]}]\n");
    EXPECT_EQ(targets(job.adapters[0], 2), "1q");
    EXPECT_EQ(targets(job.adapters[1], 2), "0q 1q");
    EXPECT_EQ(job.adapters[1].rank(0, Linear::q), 2);
    EXPECT_EQ(targets(job.adapters[2], 2), "0q");
    EXPECT_EQ(job.adapters[2].rank(0, Linear::q), 3);
}

TEST_F(ModuleRules, ComeBackFromTheResolvedJob) {
    for (const std::string keys :
         {R"(target_modules: '.*\.[0-1]\.self_attn\.(q|v)_proj', exclude_modules: '.*0.*v_proj')",
          R"(layers_to_transform: [0, 2], layers_pattern: [layers], r: 4, lora_alpha: 8,
             rank_pattern: {'.*k_proj': 7, q_proj: 2}, alpha_pattern: {q_proj: 0.1})",
          "target_modules: [0.self_attn.q_proj, up_proj], exclude_modules: [1.mlp.up_proj]",
          "init_lora_weights: gaussian, loraplus_lr_ratio: 16", "use_dora: true",
          "init_lora_weights: olora", "init_lora_weights: pissa",
          "init_lora_weights: pissa_niter_16",
          "peft_type: vera, d_initial: 0.2, projection_prng_key: 9, save_projection: false",
          "target_modules: [q_proj, lm_head], rank_pattern: {lm_head: 3}",
          "target_modules: '.*q_proj|lm_head'", "target_modules: [q_proj, model.embed_tokens]",
          "target_modules: [embed_tokens, lm_head], optim: adamw_8bit", "peft_type: LORA",
          "peft_type: VERA"}) {
        const Job job = read(minimal_job + "defaults: {" + keys + "}\n");
        const Job again = read(to_yaml(job));
        EXPECT_EQ(to_yaml(again), to_yaml(job));
        const AdapterJob& one = job.adapters[0];
        const AdapterJob& other = again.adapters[0];
        EXPECT_EQ(one.modules != nullptr, other.modules != nullptr);
        if (one.modules) {
            EXPECT_EQ(one.modules->keys(), other.modules->keys());
        }
        EXPECT_EQ(targets(one, 4), targets(other, 4));
        EXPECT_EQ(one.init_lora_weights, other.init_lora_weights);
        EXPECT_EQ(one.pissa_niter, other.pissa_niter);
        EXPECT_EQ(has_residual_start(one.form), one.init_lora_weights == Initial::pissa ||
                                                    one.init_lora_weights == Initial::olora);
        EXPECT_EQ(one.form.rates, other.form.rates);
        EXPECT_EQ(one.form.peft_switches, other.form.peft_switches);
        EXPECT_EQ(one.form.peft_type, other.form.peft_type);
        EXPECT_EQ(one.targets_head, other.targets_head);
        EXPECT_EQ(one.targets_embedding, other.targets_embedding);
        EXPECT_EQ(one.optim, other.optim);
        EXPECT_EQ(one.rank(9, Linear::head), other.rank(9, Linear::head));
        EXPECT_EQ(one.projection_prng_key, other.projection_prng_key);
        EXPECT_EQ(one.save_projection, other.save_projection);
    }
}

TEST_F(ModuleRules, LoraPlusIsARateGroupOfB) {
    const AdapterForm form = adapter("loraplus_lr_ratio: 16").form;
    EXPECT_EQ(form.rates, (std::vector<double>{1.0, 16.0}));
    EXPECT_EQ(form.tensors[0].rate_group, 0U);
    EXPECT_EQ(form.tensors[1].rate_group, 1U);
    EXPECT_EQ(adapter("loraplus_lr_ratio: null").form.rates, std::vector<double>{1.0});
}

TEST_F(ModuleRules, ProblemsNameKeyAndValue) {
    expect_only(refused("target_modules: [input_layernorm]"), at(7),
                "defaults.target_modules: 'input_layernorm' is not a target", "stay frozen");
    expect_only(refused("target_modules: [model.norm]"), at(7),
                "defaults.target_modules: 'model.norm' is not a target", "stay frozen");
    expect_only(refused("target_modules: [mlp.q_proj]"), at(7),
                "defaults.target_modules: 'mlp.q_proj' is not a target", "lm_head, embed_tokens");
    expect_only(refused("target_modules: '.*'"), at(6),
                "adapters.a.target_modules: '.*' matches model too", "stay frozen");
    EXPECT_EQ(targets(adapter("target_modules: '.*_proj|lm_head', exclude_modules: [lm_head, "
                              "up_proj, o_proj, k_proj, v_proj, gate_proj]"),
                      1),
              "0q 0down");
    for (const std::string pattern : {"(", "[a", "(?P<x>q_proj)", "(?i)q_proj", "q_proj\\Z"}) {
        const std::vector<Problem> found = refused("target_modules: '" + pattern + "'");
        ASSERT_EQ(found.size(), 1U) << pattern;
        EXPECT_NE(found[0].what.find("'" + pattern + "' "), std::string::npos) << found[0].what;
    }
    expect_only(refused("layers_to_transform: [0, x]"), at(7),
                "defaults.layers_to_transform: 'x' is not the number of a layer", "from 0 on");
    expect_only(refused("layers_to_transform: -1"), at(7),
                "defaults.layers_to_transform: '-1' is not the number of a layer", "from 0 on");
    expect_only(refused("layers_pattern: layers"), at(6),
                "adapters.a.layers_pattern: is given without layers_to_transform", "both");
    expect_only(refused("target_modules: '.*q_proj', layers_to_transform: 0"), at(6),
                "adapters.a.layers_to_transform: goes with a list of target_modules, not with a "
                "regular expression",
                "into the expression");
    expect_only(refused("rank_pattern: {q_proj: 0}"), at(7),
                "defaults.rank_pattern: '0' is not a rank", "at least 1");
    expect_only(refused("rank_pattern: [q_proj]"), at(7),
                "defaults.rank_pattern: must be a mapping", "{q_proj: 8}");
    expect_only(refused("alpha_pattern: {q_proj: 1e999}"), at(7),
                "defaults.alpha_pattern: '1e999' is not an alpha", "greater than 0");
    expect_only(refused("loraplus_lr_ratio: 0"), at(7),
                "defaults.loraplus_lr_ratio: 0 is out of range", "greater than 0");
    expect_only(
        refused("init_lora_weights: eva"), at(7),
        "defaults.init_lora_weights: 'eva' needs a pass over the data before the adapter is "
        "made",
        "init_from");
    expect_only(refused("init_lora_weights: false"), at(7),
                "defaults.init_lora_weights: 'false' would start B at random and change the model "
                "from the first step",
                "gaussian");
    expect_only(refused("init_lora_weights: gausian"), at(7),
                "defaults.init_lora_weights: 'gausian' is not known here", "true, gaussian");
    expect_only(refused("init_lora_weights: pissa_niter_x"), at(7),
                "defaults.init_lora_weights: 'pissa_niter_x' has no number of iterations",
                "pissa_niter_4");
    expect_only(refused("init_lora_weights: olora, use_dora: true"), at(6),
                "adapters.a.init_lora_weights: 'olora' does not go with use_dora",
                "one of the two");
    expect_only(refused("init_lora_weights: pissa, init_from: x"), at(6),
                "adapters.a.init_lora_weights: 'pissa' does not go with init_from, which is "
                "the start",
                "twice the r");
}

TEST_F(ModuleRules, RefusesWhatMatchesNothing) {
    const char* hint = "or the end of one: q_proj, or layers.0.self_attn.q_proj";
    for (const auto& [keys, key, what] :
         {std::tuple{"rank_pattern: {q_prj: 8}", "rank_pattern", "'q_prj' matches no target"},
          {"rank_pattern: {^q_proj: 8}", "rank_pattern", "'^q_proj' matches no target"},
          {"rank_pattern: {q_proj: 8, 'layers.0': 2}", "rank_pattern",
           "'layers.0' matches no target"},
          {"target_modules: [v_proj], rank_pattern: {q_proj: 8}", "rank_pattern",
           "'q_proj' matches no target"},
          {"exclude_modules: [q_proj], rank_pattern: {q_proj: 8}", "rank_pattern",
           "'q_proj' matches no target"},
          {"layers_to_transform: [1], rank_pattern: {0.self_attn.q_proj: 8}", "rank_pattern",
           "'0.self_attn.q_proj' matches no target"},
          {"rank_pattern: {lm_head: 8}", "rank_pattern", "'lm_head' matches no target"},
          {"alpha_pattern: {attn.q_proj: 8}", "alpha_pattern", "'attn.q_proj' matches no target"},
          {"exclude_modules: [down_prj]", "exclude_modules", "'down_prj' matches no module"},
          {"exclude_modules: [v_proj, mlp.q_proj]", "exclude_modules",
           "'mlp.q_proj' matches no module"},
          {"exclude_modules: 'self_attn'", "exclude_modules", "'self_attn' matches no module"},
          {"layers_to_transform: [0], layers_pattern: [layers, h]", "layers_pattern",
           "'h' matches no module"}}) {
        expect_only(refused(keys), at(6), std::string("adapters.a.") + key + ": " + what, hint);
    }
    for (const char* fine :
         {"exclude_modules: [lm_head]", "exclude_modules: [input_layernorm, v_proj]",
          "exclude_modules: '.*norm'",
          "target_modules: [q_proj, lm_head], rank_pattern: {lm_head: 8}",
          "layers_to_transform: [0, 255]", "rank_pattern: {'.*\\.layers\\.200\\..*': 8}"}) {
        EXPECT_TRUE(adapter(fine).modules) << fine;
    }
}

TEST_F(ModuleRules, RefusesWhatMatchesNothingInATrial) {
    const std::vector<Problem> found = problems(
        "model: {weights: base.h5}\nrun: {dir: out}\n"
        "datasets: {math: {path: m.jsonl, eval_path: e.jsonl}}\n"
        "defaults: {rank_pattern: {q_proj: 4}}\n"
        "sweep: {space: {target_modules: [[q_proj], [v_proj]]}}\n");
    ASSERT_EQ(found.size(), 1U);
    EXPECT_NE(found[0].what.find("rank_pattern: 'q_proj' matches no target"), std::string::npos)
        << found[0].what;
}

TEST_F(ModuleRules, VeraHasItsOwnKeys) {
    const AdapterJob vera = adapter("peft_type: vera, r: 64, d_initial: 0.2, lora_alpha: 7");
    EXPECT_TRUE(vera.is_vera());
    EXPECT_EQ(vera.scaling(0, Linear::q), 1.0) << "an alpha of defaults is for others";
    EXPECT_EQ(vera.form.tensors[0].value, 0.2);
    EXPECT_EQ(adapter("d_initial: 0.2").form.peft_type, "LORA") << "nor is this for LoRA";
    const struct {
        const char* keys;
        const char* key;
        const char* hint;
    } wrong[] = {
        {"use_rslora: true", "use_rslora", "learns its scales"},
        {"use_dora: true", "use_dora", "one of the two"},
        {"init_lora_weights: pissa", "init_lora_weights", "d_initial say how"},
        {"loraplus_lr_ratio: 4", "loraplus_lr_ratio", "one rate"},
        {"rank_pattern: {q_proj: 3}", "rank_pattern", "one r"},
        {"alpha_pattern: {q_proj: 3}", "alpha_pattern", "learns its scales"},
    };
    for (const auto& [keys, key, hint] : wrong) {
        expect_only(refused(std::string("peft_type: vera, ") + keys), at(6),
                    std::string("adapters.a.") + key + ": does not go with peft_type: vera", hint);
    }
    expect_only(refused("peft_type: ia3"), at(7), "defaults.peft_type: 'ia3' is not known here",
                "lora, vera");
    expect_only(refused("peft_type: vera, d_initial: 0"), at(7),
                "defaults.d_initial: 0 is out of range", "greater than 0");
}

TEST_F(ModuleRules, TheHeadIsATargetByName) {
    EXPECT_FALSE(adapter("target_modules: all-linear").targets_head) << "as PEFT has it";
    const AdapterJob named = adapter(
        "target_modules: [q_proj, lm_head], r: 8, lora_alpha: 4, "
        "rank_pattern: {lm_head: 2}");
    EXPECT_TRUE(named.targets_head);
    EXPECT_EQ(named.rank(5, Linear::head), 2);
    EXPECT_EQ(named.scaling(5, Linear::head), 2.0);
    EXPECT_EQ(named.rank(0, Linear::q), 8);
    EXPECT_EQ(named.rank(0, Linear::v), 0);
    EXPECT_TRUE(adapter("target_modules: [lm_head]").targets_head);
    EXPECT_TRUE(adapter("target_modules: '.*q_proj|lm_head'").targets_head);
    EXPECT_FALSE(
        adapter("target_modules: '.*q_proj|lm_head', exclude_modules: [lm_head]").targets_head);
    EXPECT_FALSE(
        adapter("target_modules: [q_proj, lm_head], exclude_modules: [lm_head]").targets_head);
    const std::string key = "adapters.a.target_modules: ";
    expect_only(refused("target_modules: [q_proj, lm_head], use_dora: true"), at(6),
                key + "lm_head can be trained with plain LoRA alone", "leave out use_dora");
    expect_only(refused("target_modules: [q_proj, lm_head], peft_type: vera"), at(6),
                key + "lm_head can be trained with plain LoRA alone", "leave out use_dora");
    expect_only(refused("target_modules: [q_proj, lm_head], lora_dropout: 0.1"), at(6),
                key + "lm_head does not go with lora_dropout: 0.1", "set lora_dropout: 0");
    expect_only(refused("target_modules: [q_proj, lm_head], layers_to_transform: [0]"), at(6),
                key + "lm_head is in no layer of layers_to_transform", "0.self_attn.q_proj");
}

TEST_F(ModuleRules, TokensWhoseRowsAreTrained) {
    const std::vector<std::int32_t> tokens{31, 7};
    for (const char* keys :
         {"trainable_token_indices: [31, 7]", "trainable_token_indices: {embed_tokens: [31, 7]}",
          "trainable_token_indices: [31, 7], use_dora: true"}) {
        const AdapterJob job = adapter(keys);
        EXPECT_EQ(job.trainable_token_indices, tokens) << keys;
        ASSERT_TRUE(has_token_rows(job.form)) << keys;
        EXPECT_EQ(tensor_shape(job.form.tensors.back(), job.r, {100, 64}),
                  (std::vector<std::int64_t>{2, 64}));
    }
    EXPECT_FALSE(has_token_rows(adapter("trainable_token_indices: null").form));
    const std::string key = "adapters.a.trainable_token_indices: ";
    const std::string of_defaults = "defaults.trainable_token_indices: ";
    expect_only(refused("trainable_token_indices: [1, x]"), at(7),
                of_defaults + "'x' is not a token id", "[2, 32000]");
    expect_only(refused("trainable_token_indices: {lm_head: [1]}"), at(7),
                of_defaults + "is of lm_head, not of embed_tokens alone", "{embed_tokens: ");
    expect_only(refused("trainable_token_indices: false"), at(7),
                of_defaults + "'false' is not a token id", "or leave the key out");
    expect_only(refused("trainable_token_indices: [3, 1, 3]"), at(6), key + "has 3 twice", "once");
    expect_only(refused("trainable_token_indices: [3], target_modules: [q_proj, lm_head]"), at(6),
                key + "does not go with lm_head in target_modules", "leave it out");
    expect_only(refused("trainable_token_indices: [3], peft_type: vera"), at(6),
                key + "goes with LoRA and DoRA alone, not with peft_type: vera", "leave it out");
    expect_only(refused("trainable_token_indices: [3], init_lora_weights: olora"), at(6),
                key + "goes with LoRA and DoRA alone, not with init_lora_weights: olora",
                "leave it out");
    expect_only(refused("trainable_token_indices: [3], loraplus_lr_ratio: 4"), at(6),
                key + "does not go with loraplus_lr_ratio: 4", "one of them");
}

TEST_F(ModuleRules, TheEmbeddingIsATargetByName) {
    const AdapterJob named = adapter(
        "target_modules: [q_proj, embed_tokens], r: 8, lora_alpha: 4, lora_dropout: 0.1, "
        "rank_pattern: {embed_tokens: 2}");
    EXPECT_TRUE(named.targets_embedding);
    EXPECT_FALSE(named.targets_head);
    EXPECT_EQ(named.rank(embedding_layer, Linear::embedding), 2);
    EXPECT_EQ(named.scaling(embedding_layer, Linear::embedding), 2.0);
    EXPECT_EQ(named.rank(0, Linear::q), 8);
    for (const char* keys :
         {"target_modules: [model.embed_tokens]", "target_modules: '.*q_proj|model.embed_tokens'",
          "target_modules: [embed_tokens, lm_head]"}) {
        EXPECT_TRUE(adapter(keys).targets_embedding) << keys;
    }
    for (const char* keys :
         {"target_modules: all-linear", "target_modules: '.*q_proj|embed_tokens'",
          "target_modules: [q_proj, embed_tokens], exclude_modules: [embed_tokens]"}) {
        EXPECT_FALSE(adapter(keys).targets_embedding) << keys;
    }
    const std::string key = "adapters.a.target_modules: ";
    const std::string on = "target_modules: [q_proj, embed_tokens], ";
    for (const char* form : {"use_dora: true", "peft_type: vera", "init_lora_weights: pissa"}) {
        expect_only(refused(on + form), at(6),
                    key + "embed_tokens can be trained with plain LoRA alone",
                    "leave out use_dora");
    }
    expect_only(refused(on + "loraplus_lr_ratio: 4"), at(6),
                key + "embed_tokens does not go with loraplus_lr_ratio: 4", "one of them");
    expect_only(refused(on + "layers_to_transform: [0]"), at(6),
                key + "embed_tokens is in no layer of layers_to_transform", "0.self_attn.q_proj");
}

/// A hostile expression takes no time that grows with powers of the name's length.
TEST_F(ModuleRules, RegularExpressionsDoNotBacktrack) {
    expect_only(
        refused("target_modules: '(.*)*(.*)*(.*)*(.*)*x'"), at(7),
        "defaults.target_modules: '(.*)*(.*)*(.*)*(.*)*x' is neither all-linear nor a list, "
        "and as a regular expression it matches no module",
        "whole names");
}

}  // namespace
}  // namespace loratrain
