#include "io/weights/hf_quantized_linears.h"

#include <algorithm>

#include "base/e4m3.h"
#include "base/error.h"
#include "base/quantized.h"
#include "base/tensor.h"
#include "io/float_convert.h"
#include "io/json_text.h"
#include "io/weights/quantized_parts.h"

namespace loratrain {

namespace {

constexpr const char* other_quantization =
    "config.json and weights do not belong together, or were made by another version of the "
    "library; import the model as it was before quantisation";

MatrixShape matrix_shape(const BaseTensor& tensor) {
    return {tensor.shape[0], tensor.shape[1]};
}

/// As torch names it.
std::optional<SourceType> source_of_torch(const Json& dtype) {
    if (dtype == "bfloat16") return SourceType::bf16;
    if (dtype == "float16") return SourceType::f16;
    return dtype == "float32" ? std::optional(SourceType::f32) : std::nullopt;
}

}  // namespace

HfQuantizedLinears::HfQuantizedLinears(const HfShards& shards,
                                       const std::vector<BaseTensor>& linears,
                                       const Quantization& configured, CappedProblems& problems)
    : shards_(shards), quantization_(configured) {
    for (const BaseTensor& tensor : linears) {
        if (!shards.has(tensor.name)) {
            problems.add(tensor.name, "tensor is missing",
                         "the download is incomplete, or config.json belongs to another model");
            continue;
        }
        if (float_format(shards.entry(tensor.name).dtype)) {
            names_.push_back(tensor.name);
            problems.add(shards.where(tensor.name),
                         cat("is not quantised (", shards.entry(tensor.name).dtype,
                             ") although config.json says that linear layers are"),
                         "folders of which a part is quantised are not supported; import the model "
                         "as it was before quantisation, with --quantize");
            continue;
        }
        check(tensor, problems);
    }
}

void HfQuantizedLinears::check(const BaseTensor& tensor, CappedProblems& problems) {
    switch (quantization_.format) {
        case WeightFormat::nf4:
            return check_nf4(tensor, problems);
        case WeightFormat::int8:
            return check_int8(tensor, problems);
        default:
            return check_e4m3(tensor, problems);
    }
}

bool HfQuantizedLinears::check_part(const std::string& name, const std::vector<std::string>& dtypes,
                                    const std::vector<std::vector<std::int64_t>>& shapes,
                                    CappedProblems& problems) {
    names_.push_back(name);
    if (!shards_.has(name)) {
        problems.add(name, "tensor is missing", other_quantization);
        return false;
    }
    const SafetensorsEntry& entry = shards_.entry(name);
    const bool dtype = std::find(dtypes.begin(), dtypes.end(), entry.dtype) != dtypes.end();
    const bool shape = std::find(shapes.begin(), shapes.end(), entry.shape) != shapes.end();
    if (!dtype) {
        problems.add(shards_.where(name),
                     cat("has dtype ", entry.dtype, ", must be ", join(dtypes, " or ")),
                     other_quantization);
    }
    if (!shape) {
        problems.add(
            shards_.where(name),
            cat("has shape ", shape_text(entry.shape), ", must be ", shape_text(shapes.front())),
            other_quantization);
    }
    return dtype && shape;
}

bool HfQuantizedLinears::is_nested(const std::string& weight) const {
    return shards_.has(weight + nested_absmax_suffix);
}

void HfQuantizedLinears::check_nf4(const BaseTensor& tensor, CappedProblems& problems) {
    const MatrixShape shape = matrix_shape(tensor);
    const std::int64_t block = traits_of(WeightFormat::nf4).block;
    if (shape.cols % block != 0) {
        problems.add(shards_.where(tensor.name),
                     cat("has rows of ", shape.cols, " weights, not a multiple of ", block,
                         ": rows that share scales are not supported"),
                     "import the model as it was before quantisation, with --quantize int8 or fp8");
        return;
    }
    const std::int64_t scales = shape.elements() / block;
    const bool nested = is_nested(tensor.name);
    check_part(tensor.name, {"U8"}, {{shape.elements() / 2, 1}, {1, shape.elements() / 2}},
               problems);
    check_part(scales_name(WeightFormat::nf4, tensor.name), {nested ? "U8" : "F32"}, {{scales}},
               problems);
    if (nested) {
        const std::int64_t groups = (scales + nested_block - 1) / nested_block;
        check_part(tensor.name + nested_absmax_suffix, {"F32"}, {{groups}}, problems);
        check_part(tensor.name + nested_map_suffix, {"F32"}, {{256}}, problems);
    }
    if (check_part(tensor.name + nf4_map_suffix, {"F32"}, {{16}}, problems)) {
        const std::vector<float> table =
            shards_.file(tensor.name + nf4_map_suffix).read_floats(tensor.name + nf4_map_suffix);
        if (!std::equal(table.begin(), table.end(), nf4_table.begin())) {
            problems.add(shards_.where(tensor.name + nf4_map_suffix),
                         "has other numbers than those of nf4", other_quantization);
        }
    }
    check_state(tensor, problems);
}

/// The settings that bitsandbytes packs as JSON into a tensor of bytes.
void HfQuantizedLinears::check_state(const BaseTensor& tensor, CappedProblems& problems) {
    const std::string name = tensor.name + nf4_state_suffix;
    names_.push_back(name);
    if (!shards_.has(name) || shards_.entry(name).dtype != "U8") {
        problems.add(name, "tensor of uint8 is missing", other_quantization);
        return;
    }
    const SafetensorsEntry& entry = shards_.entry(name);
    std::string text(entry.end - entry.begin, '\0');
    shards_.file(name).read_bytes(name, 0, text.size(), text.data());
    const Json state = parse_json(text, shards_.where(name));
    const auto must_be = [&](const char* key, const Json& value) {
        const Json found = state.is_object() && state.contains(key) ? state[key] : Json();
        if (found == value) return;
        problems.add(shards_.where(name),
                     cat(key, " is ", json_text(found), ", must be ", json_text(value)),
                     other_quantization);
    };
    must_be("quant_type", "nf4");
    must_be("blocksize", traits_of(WeightFormat::nf4).block);
    must_be("shape", Json(tensor.shape));
    if (is_nested(tensor.name)) {
        must_be("nested_blocksize", nested_block);
        must_be("nested_dtype", "float32");
        if (!state.is_object() || !state.contains("nested_offset") ||
            !state["nested_offset"].is_number()) {
            problems.add(shards_.where(name), "has no number nested_offset", other_quantization);
        }
    }
    const auto source = state.is_object() && state.contains("dtype")
                            ? source_of_torch(state["dtype"])
                            : std::nullopt;
    if (!source) {
        problems.add(shards_.where(name), "has no dtype float32, bfloat16 or float16",
                     other_quantization);
        return;
    }
    if (source_known_ && *source != quantization_.source) {
        problems.add(shards_.where(name),
                     cat("has dtype ", name_of(*source), ", other linear layers ",
                         name_of(quantization_.source)),
                     "folders of several types are not supported");
    }
    quantization_.source = *source;
    source_known_ = true;
}

void HfQuantizedLinears::check_int8(const BaseTensor& tensor, CappedProblems& problems) {
    check_part(tensor.name, {"I8"}, {tensor.shape}, problems);
    check_part(scales_name(WeightFormat::int8, tensor.name), {"F32"}, {{tensor.shape[0]}},
               problems);
    const std::string layout = tensor.name + "_format";
    if (!shards_.has(layout)) return;
    if (!check_part(layout, {"U8"}, {{}, {1}}, problems)) return;
    std::uint8_t kind = 0;
    shards_.file(layout).read_bytes(layout, 0, 1, &kind);
    if (kind != 0) {
        problems.add(shards_.where(layout), cat("is ", int{kind}, ", must be 0: rows"),
                     "the codes lie in the order of an old GPU; save the model again");
    }
}

void HfQuantizedLinears::check_e4m3(const BaseTensor& tensor, CappedProblems& problems) {
    const std::vector<std::string> floats{"F32", "BF16", "F16"};
    const std::int64_t rows = tensor.shape[0];
    check_part(tensor.name, {"F8_E4M3"}, {tensor.shape}, problems);
    const std::string scales = scales_name(quantization_.format, tensor.name);
    if (quantization_.format == WeightFormat::e4m3_block) {
        check_part(scales, floats, {scales_shape(quantization_.format, matrix_shape(tensor))},
                   problems);
    } else {
        check_part(scales, floats, {{rows, 1}, {rows}, {1}, {}, {1, 1}}, problems);
    }
    const std::string of_input = tensor.name.substr(0, tensor.name.rfind('.')) + ".input_scale";
    if (shards_.has(of_input)) names_.push_back(of_input);
}

std::uint64_t HfQuantizedLinears::copy_codes(const BaseTensor& tensor, BaseWriter& writer) const {
    const auto [rows, cols] = matrix_shape(tensor);
    const auto row = static_cast<std::int64_t>(code_bytes(traits_of(quantization_.format), cols));
    const StoredType type = codes_type(quantization_);
    const bool e4m3 = quantization_.format == WeightFormat::e4m3 ||
                      quantization_.format == WeightFormat::e4m3_block;
    const std::int64_t block = BaseWriter::rows_per_block({rows, row}, type);
    std::vector<std::uint8_t> codes(static_cast<std::size_t>(block * row));
    writer.begin(tensor.name, {rows, row}, type);
    for (std::int64_t first = 0; first < rows; first += block) {
        const std::int64_t count = std::min(block, rows - first);
        const auto bytes = static_cast<std::size_t>(count * row);
        shards_.file(tensor.name)
            .read_bytes(tensor.name, static_cast<std::uint64_t>(first * row), bytes, codes.data());
        const auto end = codes.begin() + static_cast<std::ptrdiff_t>(bytes);
        const auto nan = std::find_if(codes.begin(), end,
                                      [](std::uint8_t code) { return (code & 0x7fU) == e4m3_nan; });
        if (e4m3 && nan != end) {
            throw InputError(shards_.where(tensor.name),
                             cat("value ", first * row + (nan - codes.begin()), " is nan"),
                             "weights must be finite; the file is damaged, or the training that "
                             "made it diverged");
        }
        writer.write_rows(count, codes.data());
    }
    writer.end();
    return static_cast<std::uint64_t>(rows * row);
}

std::uint64_t HfQuantizedLinears::copy_floats(const std::string& from, const std::string& to,
                                              const std::vector<std::int64_t>& shape,
                                              BaseWriter& writer) const {
    const std::vector<float> values = shards_.file(from).read_floats(from);
    check_finite(FloatFormat::f32, values.data(), static_cast<std::int64_t>(values.size()), 0,
                 shards_.where(from));
    writer.write(to, shape, dense_type(WeightFormat::f32), values.data());
    return values.size() * sizeof(float);
}

std::uint64_t HfQuantizedLinears::copy(const BaseTensor& tensor, BaseWriter& writer) const {
    std::uint64_t bytes = copy_codes(tensor, writer);
    const std::string scales = scales_name(quantization_.format, tensor.name);
    std::vector<std::int64_t> shape = scales_shape(quantization_.format, matrix_shape(tensor));
    if (quantization_.format != WeightFormat::nf4 || !is_nested(tensor.name)) {
        if (element_count(shards_.entry(scales).shape) == 1) shape.assign(shape.size(), 1);
        return bytes + copy_floats(scales, scales, shape, writer);
    }
    std::vector<std::uint8_t> codes(static_cast<std::size_t>(shape[0]));
    shards_.file(scales).read_bytes(scales, 0, codes.size(), codes.data());
    writer.write(scales, shape, bytes_type(), codes.data());
    bytes += codes.size();
    const std::string absmax = tensor.name + nested_absmax_suffix;
    const std::string map = tensor.name + nested_map_suffix;
    bytes += copy_floats(absmax, absmax, shards_.entry(absmax).shape, writer);
    bytes += copy_floats(map, map, {256}, writer);
    const std::string state = tensor.name + nf4_state_suffix;
    std::string text(shards_.entry(state).end - shards_.entry(state).begin, '\0');
    shards_.file(state).read_bytes(state, 0, text.size(), text.data());
    const auto offset =
        static_cast<float>(parse_json(text, shards_.where(state))["nested_offset"].get<double>());
    writer.write(tensor.name + nested_offset_suffix, {1}, dense_type(WeightFormat::f32), &offset);
    return bytes + sizeof(float);
}

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

bool is_mxfp4(JsonReader& config) {
    const Json& object = config.get("quantization_config");
    return object.is_object() && object.value("quant_method", Json()) == "mxfp4";
}

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
