#include "io/weights/hf_notes.h"

#include "base/text.h"
#include "io/json_text.h"
#include "io/weights/hf_config.h"
#include "io/weights/hf_family.h"

namespace loratrain {

namespace {

/// config.json of a text model and its family.
struct TextModel {
    Json config;
    const Family* family;  ///< null: not known
    bool wrapped;
};

TextModel text_model(const std::string& config_text) {
    const Json document = parse_json(config_text, "config.json");
    Json config = text_document(document, "config.json");
    const Family* family = family_named(config.value("model_type", ""));
    return {std::move(config), family, wrapper_of(document) != nullptr};
}

/// Keys of rates of dropout that are in no family's Dropout and not 0.
std::vector<std::string> unread_dropouts(const TextModel& model) {
    std::vector<std::string> names;
    for (const auto& [key, value] : model.config.items()) {
        const bool rate = key.ends_with("_dropout") || key.ends_with("_pdrop") || key == "dropout";
        const bool read =
            key == model.family->attention_dropout.key || key == model.family->residual_dropout.key;
        if (rate && !read && value.is_number() && value != 0) {
            names.push_back(cat(key, " ", json_text(value)));
        }
    }
    return names;
}

std::string dropout_note(const TextModel& model) {
    std::vector<std::string> applied;
    for (const Dropout& dropout :
         {model.family->attention_dropout, model.family->residual_dropout}) {
        const auto given = model.config.find(dropout.key);
        const bool is_given = given != model.config.end() && given->is_number();
        const double rate = is_given ? given->get<double>() : dropout.missing;
        if (rate == 0.0) continue;
        applied.push_back(cat(dropout.key, " ", rate, is_given ? "" : " (the family's default)"));
    }
    if (applied.empty()) return "";
    return cat(
        "the base has ", join(applied, " and "),
        ": transformers applies it in training mode, and it is left out here, so that losses "
        "equal those of transformers with the base's dropout set to 0");
}

std::string sizes_note(const TextModel& model) {
    std::vector<std::string> missing;
    for (const FamilySize& size : family_sizes(*model.family)) {
        const auto found = model.config.find(size.key);
        if (size.missing == 0 || (found != model.config.end() && !found->is_null())) continue;
        missing.push_back(cat(size.key, " ", size.missing));
    }
    if (missing.empty()) return "";
    return cat(
        "config.json leaves out some sizes; as transformers does, the import takes those of the "
        "class of ",
        model.family->name, ": ", join(missing, ", "));
}

std::string further_layers_note(const std::string& config_text, const TextModel& model) {
    const std::int64_t layers = further_layers_of(config_text);
    if (layers == 0) return "";
    return cat("config.json has ", model.family->further_layers.count_key, " ", layers,
               ": layers behind the last, which predict further tokens, are left out, as "
               "transformers leaves them out");
}

std::string widened_note(const TextModel& model) {
    const auto found = model.config.find("quantization_config");
    const bool given = found != model.config.end() && found->is_object();
    if (!given || found->value("quant_method", Json()) != "mxfp4") return "";
    return "experts in mxfp4 are read as the bf16 numbers that they stand for, nearly four times "
           "the bytes; --quantize nf4, int8 or fp8 needs less, and rounds them again";
}

std::vector<std::string> unused_caps(const TextModel& model) {
    std::vector<std::string> names;
    const auto add = [&](const char* key, bool used) {
        const auto found = model.config.find(key);
        if (used || found == model.config.end() || !found->is_number()) return;
        names.push_back(cat(key, " ", json_text(*found)));
    };
    if (model.family->query_pre_attn_scalar == 0) return names;
    add("attn_logit_softcapping", model.family->attention_soft_cap > 0.0);
    add("final_logit_softcapping", !model.wrapped);
    return names;
}

}  // namespace

std::string base_dropout_note(const std::string& config_text) {
    if (config_text.empty()) return "";
    const TextModel model = text_model(config_text);
    return model.family == nullptr ? "" : dropout_note(model);
}

std::vector<std::string> hf_config_notes(const std::string& config_text) {
    const TextModel model = text_model(config_text);
    std::vector<std::string> notes;
    if (model.family == nullptr) return notes;
    const auto add = [&](std::string note) {
        if (!note.empty()) notes.push_back(std::move(note));
    };
    add(sizes_note(model));
    add(dropout_note(model));
    add(further_layers_note(config_text, model));
    add(widened_note(model));
    std::vector<std::string> unused = unread_dropouts(model);
    for (std::string& cap : unused_caps(model)) unused.push_back(std::move(cap));
    if (!unused.empty()) {
        add(cat("config.json has ", join(unused, ", "), ": transformers does not use this in ",
                model.wrapped ? "this model" : model.family->name, ", and neither does loratrain"));
    }
    return notes;
}

}  // namespace loratrain
