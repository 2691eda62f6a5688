#include "io/adapters/adapter_products.h"

#include <optional>
#include <utility>

#include "base/error.h"
#include "base/threads.h"
#include "config/model_limits.h"
#include "io/float_convert.h"
#include "io/tensor_names.h"

namespace loratrain {

namespace {

constexpr const char* peft_hint = "merge it with PEFT: merge_and_unload()";
constexpr const char* head_lora = "base_model.model.lm_head.lora_";

}  // namespace

void add_product(const Product& product, std::int64_t first, const TensorView& rows) {
    share_rows(rows.rows, rows.cols * product.rank, [&](std::int64_t begin, std::int64_t end) {
        for (std::int64_t i = begin; i < end; ++i) {
            float* w = rows.f32() + i * rows.ld;
            const float* b = product.b.data() + (first + i) * product.rank;
            for (std::int64_t k = 0; k < product.rank; ++k) {
                const float* a = product.a.data() + k * rows.cols;
                for (std::int64_t j = 0; j < rows.cols; ++j) w[j] += b[k] * a[j];
            }
        }
    });
}

AdapterProducts::AdapterProducts(const std::string& dir, const WeightSource& base)
    : config_(dir + "/adapter_config.json", base.spec()),
      file_(cat(dir, "/", adapter_weights_name)),
      base_(base),
      model_(base.spec()),
      faults_(file_.path(), CappedProblems::default_limit, CappedProblems::alike_lines) {
    if (has_other_names(model_)) {
        file_.rename([&](const std::string& name) { return peft_name_of_files(model_, name); });
    }
    // Of what the config says tensors would tell again.
    check_config().throw_if_any();
    Problems problems;
    const std::optional<AdapterJob> job = config_.modules(problems);
    problems.throw_if_any();
    config_.warn_of_dead_rules();
    read(*job);
    check_own_weights();
    check_other_tensors();
    faults_.throw_if_any();
    if (products_.empty()) {
        throw InputError(dir, "has no LoRA on linear layers of this model",
                         "was the adapter trained on this base model?");
    }
}

const Product* AdapterProducts::of(const std::string& weight) const {
    const auto found = products_.find(weight);
    return found == products_.end() ? nullptr : &found->second;
}

Problems AdapterProducts::check_config() const {
    Problems problems;
    JsonReader config = config_.reader(problems);
    if (config.text("peft_type") != "LORA") {
        config.wrong("peft_type", "only LORA can be merged here", peft_hint);
        return problems;
    }
    for (const ConfigVariant& variant : config_.variants(lora_form())) {
        const char* hint = variant.merges ? peft_hint : "PEFT cannot merge it either";
        config.wrong(variant.key.c_str(), variant.meaning + ": it cannot be merged here",
                     variant.hint.empty() ? hint : variant.hint);
    }
    if (const ModelLimit* limit = limit_of(model_, Ability::merge)) {
        config.add(limit->what(model_), limit->hint);
    }
    return problems;
}

void AdapterProducts::read(const AdapterJob& job) {
    for (std::int64_t layer = 0; layer < model_.layers; ++layer) {
        for (int i = 0; i < linear_count; ++i) {
            const auto linear = static_cast<Linear>(i);
            const TargetExperts experts = target_of(model_, layer, linear).experts;
            for (std::int32_t e = experts.first; e < experts.first + experts.count; ++e) {
                read(job, layer, linear, e);
            }
        }
    }
    if (!model_.tie_word_embeddings) read(job, model_.layers, Linear::head, no_expert);
}

void AdapterProducts::read(const AdapterJob& job, std::int64_t layer, Linear linear,
                           std::int32_t expert) {
    const std::string path = module_path(layer, linear, expert);
    const std::string a = cat("base_model.model.", path, ".lora_A.weight");
    const std::string b = cat("base_model.model.", path, ".lora_B.weight");
    const LayerLinear target = target_of(model_, layer, linear);
    if (!target.is_there || file_.entries().count(a) == 0) return;
    known_.insert({a, b});
    const LinearShape& shape = target.shape;
    const int rank = job.rank(layer, linear);
    if (rank == 0) {
        add(a, "is of no module that target_modules of adapter_config.json names",
            "PEFT leaves it out");
        return;
    }
    if (!fits(a, {rank, shape.in}) || !fits(b, {shape.out, rank})) return;
    Product product{rank, read_finite(a), read_finite(b)};
    const auto scaling = static_cast<float>(job.scaling(layer, linear));
    for (float& value : product.b) value *= scaling;
    products_.emplace(path + ".weight", std::move(product));
}

bool AdapterProducts::fits(const std::string& name, const std::vector<std::int64_t>& wanted) {
    const auto found = file_.entries().find(name);
    const bool there = found != file_.entries().end();
    if (there && found->second.shape == wanted) return true;
    add(name, cat(there ? "has shape " + shape_text(found->second.shape) : "is missing",
                  ", the base and r want ", shape_text(wanted)));
    return false;
}

std::vector<float> AdapterProducts::read_finite(const std::string& name) {
    std::vector<float> values = file_.read_floats(name);
    collect(faults_, [&] {
        check_finite(FloatFormat::f32, values.data(), std::ssize(values), 0, where(name));
    });
    return values;
}

void AdapterProducts::check_own_weights() {
    for (const OwnWeight& own : own_weights(model_)) {
        if (file_.entries().count(own.tensor) == 0) continue;
        known_.insert(own.tensor);
        if (!fits(own.tensor, {model_.vocab_size, model_.hidden_size})) continue;
        if (!is_of_base(file_, own, base_)) add(own.tensor, not_of_base, not_of_base_hint);
    }
}

void AdapterProducts::check_other_tensors() {
    for (const auto& [name, entry] : file_.entries()) {
        if (known_.count(name) > 0) continue;
        const bool tied = model_.tie_word_embeddings && name.starts_with(head_lora);
        add(name, "cannot be merged into the base",
            tied ? "the head is the embedding matrix: LoRA on it alone is not a weight of the "
                   "base"
                 : "only lora_A and lora_B of its linear layers can");
    }
}

}  // namespace loratrain
