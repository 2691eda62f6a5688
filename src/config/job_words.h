#pragma once

#include <array>
#include <charconv>
#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "config/job.h"
#include "config/merged_form.h"

namespace loratrain {

/// The words that stand for the values of enumerations in job files and plan.yaml.

/// The spelling of a value in the job file and in plan.yaml.
template <class E>
struct Word {
    const char* text;
    E value;
};

inline constexpr std::array<Word<Precision>, 4> precision_words{{
    {"auto", Precision::automatic},
    {"fp32", Precision::fp32},
    {"bf16", Precision::bf16},
    {"fp8", Precision::fp8},
}};
inline constexpr std::array<Word<Residency::Kind>, 4> residency_words{{
    {"auto", Residency::Kind::automatic},
    {"all", Residency::Kind::all},
    {"stream", Residency::Kind::stream},
    {"shared", Residency::Kind::shared},
}};
/// Weight formats to which a base is quantised.
inline constexpr std::array<Word<WeightFormat>, 3> quantize_words{{
    {"nf4", WeightFormat::nf4},
    {"int8", WeightFormat::int8},
    {"fp8", WeightFormat::e4m3},
}};
/// Forms in which merge writes weights in few bits.
inline constexpr std::array<Word<MergedForm>, 4> merged_form_words{{
    {"nf4", MergedForm::nf4},
    {"int8", MergedForm::int8},
    {"fp8", MergedForm::fp8},
    {"mxfp4", MergedForm::mxfp4},
}};
inline constexpr std::array<Word<Offload::Kind>, 2> offload_words{{
    {"auto", Offload::Kind::automatic},
    {"none", Offload::Kind::none},
}};
/// The value of a text: a word, or the number of layers for Kind::some; none for any other text.
template <class Of, std::size_t size>
std::optional<Of> word_or_layers(std::string_view text,
                                 const std::array<Word<typename Of::Kind>, size>& words) {
    for (const auto& known : words) {
        if (text == known.text) return Of{known.value, 0};
    }
    Of some{Of::Kind::some, 0};
    const char* end = text.data() + text.size();
    const auto parsed = std::from_chars(text.data(), end, some.layers);
    if (parsed.ec != std::errc{} || parsed.ptr != end || some.layers < 0) return std::nullopt;
    return some;
}
/// The value of --residency.
inline std::optional<Residency> residency_of(std::string_view text) {
    return word_or_layers<Residency>(text, residency_words);
}
/// The value of --offload.
inline std::optional<Offload> offload_of(std::string_view text) {
    return word_or_layers<Offload>(text, offload_words);
}
/// The value of a word; none for any other word.
template <class E, std::size_t size>
std::optional<E> value_of(const std::array<Word<E>, size>& words, std::string_view word) {
    for (const Word<E>& known : words) {
        if (word == known.text) return known.value;
    }
    return std::nullopt;
}
inline std::optional<WeightFormat> quantized_format(std::string_view word) {
    return value_of(quantize_words, word);
}
inline constexpr std::array<Word<LinearGroup>, linear_group_count> linear_group_words{{
    {"qkv", LinearGroup::qkv},
    {"o", LinearGroup::o},
    {"gate_up", LinearGroup::gate_up},
    {"down", LinearGroup::down},
    {"shared_gate_up", LinearGroup::shared_gate_up},
    {"shared_down", LinearGroup::shared_down},
    {"delta_in", LinearGroup::delta_in},
    {"delta_out", LinearGroup::delta_out},
    {"latent_q", LinearGroup::latent_q},
    {"latent_kv", LinearGroup::latent_kv},
}};

inline constexpr std::array<Word<BackendKind>, 3> backend_words{{
    {"auto", BackendKind::automatic},
    {"cpu", BackendKind::cpu},
    {"cuda", BackendKind::cuda},
}};
inline constexpr std::array<Word<OverLength>, 3> over_length_words{{
    {"error", OverLength::error},
    {"truncate", OverLength::truncate},
    {"drop", OverLength::drop},
}};
inline constexpr std::array<Word<Tokenizer>, 2> tokenizer_words{{
    {"none", Tokenizer::none},
    {"bytes", Tokenizer::bytes},
}};
inline constexpr std::array<Word<Recompute>, 3> recompute_words{{
    {"auto", Recompute::automatic},
    {"none", Recompute::none},
    {"layer", Recompute::layer},
}};
inline constexpr std::array<Word<SchedulePolicy>, 4> schedule_policy_words{{
    {"sequential", SchedulePolicy::sequential},
    {"1f1b", SchedulePolicy::one_f_one_b},
    {"mlora", SchedulePolicy::mlora},
    {"balanced", SchedulePolicy::balanced},
}};
inline constexpr std::array<Word<Packing>, 3> packing_words{{
    {"milp", Packing::milp},
    {"greedy", Packing::greedy},
    {"bucketed", Packing::bucketed},
}};
inline constexpr std::array<Word<DispatchRule>, 3> dispatch_words{{
    {"balanced", DispatchRule::balanced},
    {"length", DispatchRule::length},
    {"uniform", DispatchRule::uniform},
}};
inline constexpr std::array<Word<ExpertCut>, 2> expert_cut_words{{
    {"columns", ExpertCut::columns},
    {"whole", ExpertCut::whole},
}};
inline constexpr std::array<Word<Assignment>, 4> assignment_words{{
    {"auto", Assignment::automatic},
    {"joint", Assignment::joint},
    {"each", Assignment::each},
    {"plora", Assignment::plora},
}};
inline constexpr std::array<Word<Redeploy>, 2> redeploy_words{{
    {"auto", Redeploy::automatic},
    {"never", Redeploy::never},
}};
inline constexpr std::array<Word<AdvantageScale>, 2> advantage_words{{
    {"mean", AdvantageScale::mean},
    {"deviation", AdvantageScale::deviation},
}};
inline constexpr std::array<Word<Loss>, 12> loss_words{{
    {"sft", Loss::sft},
    {"dpo", Loss::dpo},
    {"cpo", Loss::cpo},
    {"simpo", Loss::simpo},
    {"orpo", Loss::orpo},
    {"kto", Loss::kto},
    {"cit", Loss::cit},
    {"importance_sampling", Loss::importance_sampling},
    {"ppo", Loss::ppo},
    {"cispo", Loss::cispo},
    {"dro", Loss::dro},
    {"grpo", Loss::grpo},
}};
/// The losses of rollouts, as messages name them.
inline constexpr const char* rollout_words = "importance_sampling, ppo, cispo, dro or grpo";
inline constexpr std::array<Word<LossAggregation>, 3> loss_aggregation_words{{
    {"token", LossAggregation::token},
    {"sequence", LossAggregation::sequence},
    {"constant", LossAggregation::constant},
}};
inline constexpr std::array<Word<LossType>, 5> loss_type_words{{
    {"sigmoid", LossType::sigmoid},
    {"hinge", LossType::hinge},
    {"ipo", LossType::ipo},
    {"nll", LossType::nll},
    {"dft", LossType::dft},
}};
inline constexpr std::array<Word<CostSource>, 2> cost_source_words{{
    {"auto", CostSource::automatic},
    {"built-in", CostSource::built_in},
}};
inline constexpr std::array<Word<ExportScaling>, 2> export_scaling_words{{
    {"peft", ExportScaling::peft},
    {"plain", ExportScaling::plain},
}};

inline constexpr std::array<Word<DType>, 2> export_dtype_words{{
    {"fp32", DType::f32},
    {"bf16", DType::bf16},
}};

inline constexpr std::array<Word<LiveTable>, 2> live_table_words{{
    {"auto", LiveTable::automatic},
    {"never", LiveTable::never},
}};
inline constexpr std::array<Word<LrSchedule>, 9> lr_scheduler_words{{
    {"constant", LrSchedule::constant},
    {"constant_with_warmup", LrSchedule::constant_with_warmup},
    {"linear", LrSchedule::linear},
    {"cosine", LrSchedule::cosine},
    {"cosine_with_restarts", LrSchedule::cosine_with_restarts},
    {"cosine_with_min_lr", LrSchedule::cosine_with_min_lr},
    {"polynomial", LrSchedule::polynomial},
    {"inverse_sqrt", LrSchedule::inverse_sqrt},
    {"warmup_stable_decay", LrSchedule::warmup_stable_decay},
}};
inline constexpr std::array<Word<LrRamp>, 3> lr_ramp_words{{
    {"linear", LrRamp::linear},
    {"cosine", LrRamp::cosine},
    {"1-sqrt", LrRamp::one_minus_sqrt},
}};
inline constexpr std::array<Word<SweepMethod>, 3> sweep_method_words{{
    {"grid", SweepMethod::grid},
    {"random", SweepMethod::random},
    {"list", SweepMethod::list},
}};
inline constexpr std::array<Word<SweepObjective>, 2> sweep_objective_words{{
    {"eval_loss", SweepObjective::eval_loss},
    {"exact_match", SweepObjective::exact_match},
}};
inline constexpr std::array<Word<SweepExport>, 3> sweep_export_words{{
    {"best", SweepExport::best},
    {"all", SweepExport::all},
    {"none", SweepExport::none},
}};
inline constexpr std::array<Word<Speculation>, 3> speculation_words{{
    {"auto", Speculation::automatic},
    {"always", Speculation::always},
    {"never", Speculation::never},
}};
inline constexpr std::array<Word<TrialScheduler>, 4> trial_scheduler_words{{
    {"none", TrialScheduler::none},
    {"halving", TrialScheduler::halving},
    {"asha", TrialScheduler::asha},
    {"median", TrialScheduler::median},
}};
/// peft_type, as people write it in lower case, and as PEFT writes it in capitals.
inline constexpr std::array<Word<PeftType>, 4> peft_type_words{{
    {"lora", PeftType::lora},
    {"vera", PeftType::vera},
    {"LORA", PeftType::lora},
    {"VERA", PeftType::vera},
}};
/// Words of transformers. All but the first two mean adamw_torch.
inline constexpr std::array<Word<Optim>, 6> optim_words{{
    {"adamw_torch", Optim::adamw_torch},
    {"adamw_8bit", Optim::adamw_8bit},
    {"adamw", Optim::adamw_torch},
    {"adamw_torch_fused", Optim::adamw_torch},
    {"adamw_hf", Optim::adamw_torch},
    {"adam", Optim::adamw_torch},
}};
/// init_lora_weights
inline constexpr std::array<Word<Initial>, 4> initial_words{{
    {"true", Initial::uniform},
    {"gaussian", Initial::gaussian},
    {"pissa", Initial::pissa},
    {"olora", Initial::olora},
}};
/// What precedes the number of iterations.
inline constexpr const char* pissa_niter_word = "pissa_niter_";
inline constexpr const char* all_linear_word = "all-linear";
inline constexpr const char* auto_word = "auto";
inline constexpr const char* pipeline_word = "pipeline";

template <class E, std::size_t N>
std::string word_of(const std::array<Word<E>, N>& words, E value) {
    for (const Word<E>& word : words) {
        if (word.value == value) return word.text;
    }
    return "";
}

template <class E, std::size_t N>
std::vector<std::string> word_texts(const std::array<Word<E>, N>& words) {
    std::vector<std::string> texts;
    texts.reserve(N);
    for (const Word<E>& word : words) texts.emplace_back(word.text);
    return texts;
}

}  // namespace loratrain
