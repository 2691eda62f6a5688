#include "io/weights/hf_quantization.h"

namespace loratrain {

namespace {

constexpr const char* use_the_original =
    "import the model as it was before quantisation; known here: bitsandbytes nf4 and int8, fp8 in "
    "blocks of 128 x 128, compressed-tensors float-quantized by channel or tensor";

std::optional<WeightFormat> read_bitsandbytes(JsonReader& config) {
    if (config.flag("load_in_8bit")) return WeightFormat::int8;
    if (!config.flag("load_in_4bit")) {
        config.add("quantization_config of bitsandbytes sets neither load_in_4bit nor load_in_8bit",
                   use_the_original);
        return std::nullopt;
    }
    const bool fp4 = !config.has("bnb_4bit_quant_type");  // the library's default
    if (fp4 || config.text("bnb_4bit_quant_type") != "nf4") {
        const char* rule = "must be nf4";
        if (fp4) {
            config.add("quantization_config.bnb_4bit_quant_type is missing, which means fp4",
                       use_the_original);
        } else {
            config.wrong("bnb_4bit_quant_type", rule, use_the_original);
        }
        return std::nullopt;
    }
    if (config.has("bnb_4bit_quant_storage") && config.text("bnb_4bit_quant_storage") != "uint8") {
        config.wrong("bnb_4bit_quant_storage", "must be uint8", use_the_original);
    }
    return WeightFormat::nf4;
}

std::optional<WeightFormat> read_fp8(JsonReader& config) {
    if (config.get("weight_block_size") == Json::array({128, 128})) return WeightFormat::e4m3_block;
    if (config.has("weight_block_size")) {
        config.wrong("weight_block_size", "must be [128, 128]", use_the_original);
    } else {
        config.add("quantization_config.weight_block_size is missing, must be [128, 128]",
                   use_the_original);
    }
    return std::nullopt;
}

void check_group(const std::string& name, const Json& group, JsonReader& config) {
    const Json none;
    const auto found = group.is_object() ? group.find("weights") : group.end();
    const Json& weights = group.is_object() && found != group.end() ? *found : none;
    if (!weights.is_object()) {
        config.add(cat("quantization_config.config_groups.", name, " has no weights"),
                   use_the_original);
        return;
    }
    JsonReader reader(weights, config.where(),
                      cat("quantization_config.config_groups.", name, ".weights."),
                      config.problems());
    if (reader.get("num_bits") != 8) reader.wrong("num_bits", "must be 8", use_the_original);
    if (reader.text("type") != "float") reader.wrong("type", "must be float", use_the_original);
    const std::string strategy = reader.text("strategy");
    if (strategy != "channel" && strategy != "tensor") {
        reader.wrong("strategy", "must be channel or tensor", use_the_original);
    }
}

std::optional<WeightFormat> read_compressed_tensors(JsonReader& config) {
    const Json& groups = config.get("config_groups");
    if (config.text("format") != "float-quantized") {
        config.wrong("format", "must be float-quantized", use_the_original);
        return std::nullopt;
    }
    if (!groups.is_object() || groups.empty()) {
        config.add("quantization_config has no config_groups", use_the_original);
        return std::nullopt;
    }
    for (const auto& [name, group] : groups.items()) check_group(name, group, config);
    return WeightFormat::e4m3;
}

std::optional<WeightFormat> read_method(JsonReader& config) {
    const std::string method = config.text("quant_method");
    const bool old =
        !config.has("quant_method") && (config.has("load_in_4bit") || config.has("load_in_8bit"));
    if (method == "bitsandbytes" || old) return read_bitsandbytes(config);
    if (method == "fp8") return read_fp8(config);
    if (method == "compressed-tensors") return read_compressed_tensors(config);
    config.wrong("quant_method", "which is not supported", use_the_original);
    return std::nullopt;
}

SourceType read_source(JsonReader& config) {
    std::string name = config.has("dtype") ? config.text("dtype") : "";
    if (name.empty() && config.has("torch_dtype")) name = config.text("torch_dtype");
    if (name == "float32") return SourceType::f32;
    return name == "float16" ? SourceType::f16 : SourceType::bf16;
}

}  // namespace

std::optional<Quantization> read_hf_quantization(JsonReader& config) {
    if (!config.has("quantization_config")) return std::nullopt;
    const Json& object = config.get("quantization_config");
    if (!object.is_object()) {
        config.wrong("quantization_config", "must be an object");
        return std::nullopt;
    }
    JsonReader reader(object, config.where(), "quantization_config.", config.problems());
    const auto format = read_method(reader);
    if (!format) return std::nullopt;
    return Quantization{*format, read_source(config)};
}

}  // namespace loratrain
