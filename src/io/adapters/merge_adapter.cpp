#include "io/adapters/merge_adapter.h"

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/task_progress.h"
#include "base/tensor.h"
#include "base/threads.h"
#include "config/layer_tensors.h"
#include "config/model_limits.h"
#include "io/adapters/adapter_config.h"
#include "io/adapters/adapter_file.h"
#include "io/capped_problems.h"
#include "io/files.h"
#include "io/float_convert.h"
#include "io/json_text.h"
#include "io/raw_file.h"
#include "io/tensor_names.h"

namespace loratrain {

namespace fs = std::filesystem;

namespace {

constexpr std::int64_t block_floats = 2 << 20;
constexpr const char* peft_hint = "merge it with PEFT: merge_and_unload()";

/// scaling B A of one module.
struct Product {
    std::int64_t rank = 0;
    std::vector<float> a;  ///< [rank, in]
    std::vector<float> b;  ///< [out, rank], times scaling
};

/// A tensor to be written.
struct Piece {
    std::string name;  ///< in base.h5
    std::vector<std::int64_t> shape;
    DType dtype = DType::f32;
    const Product* product = nullptr;
    std::optional<float> constant{};  ///< a scalar that base.h5 has not
    /// Of all experts of a layer: their matrices [out, in], which base.h5 has in place of it.
    std::vector<Piece> parts{};
    /// Gates and ups take turns in its last dimension, the outputs (packed_experts.h).
    bool in_turn = false;
    std::uint64_t bytes() const {
        return static_cast<std::uint64_t>(element_count(shape)) * size_of(dtype);
    }
};

class AdapterProducts {
  public:
    AdapterProducts(const std::string& dir, const WeightSource& base)
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
            throw InputError(dir, "has no LoRA of this model's linears",
                             "was the adapter trained on this base model?");
        }
    }

    /// Null where the weight has none.
    const Product* of(const std::string& weight) const {
        const auto found = products_.find(weight);
        return found == products_.end() ? nullptr : &found->second;
    }
    std::int64_t count() const { return std::ssize(products_); }

  private:
    Problems check_config() const {
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

    void read(const AdapterJob& job) {
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

    void read(const AdapterJob& job, std::int64_t layer, Linear linear, std::int32_t expert) {
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

    bool fits(const std::string& name, const std::vector<std::int64_t>& wanted) {
        const auto found = file_.entries().find(name);
        const bool there = found != file_.entries().end();
        if (there && found->second.shape == wanted) return true;
        add(name, cat(there ? "has shape " + shape_text(found->second.shape) : "is missing",
                      ", the base and r want ", shape_text(wanted)));
        return false;
    }

    std::vector<float> read_finite(const std::string& name) {
        std::vector<float> values = file_.read_floats(name);
        collect(faults_, [&] {
            check_finite(FloatFormat::f32, values.data(), std::ssize(values), 0, where(name));
        });
        return values;
    }

    void check_own_weights() {
        for (const OwnWeight& own : own_weights(model_)) {
            if (file_.entries().count(own.tensor) == 0) continue;
            known_.insert(own.tensor);
            if (!fits(own.tensor, {model_.vocab_size, model_.hidden_size})) continue;
            if (!is_of_base(file_, own, base_)) add(own.tensor, not_of_base, not_of_base_hint);
        }
    }

    void check_other_tensors() {
        for (const auto& [name, entry] : file_.entries()) {
            if (known_.count(name) > 0) continue;
            const bool tied = model_.tie_word_embeddings && name.starts_with(head_lora);
            add(name, "cannot be merged into the base",
                tied ? "the head is the embedding matrix: LoRA on it alone is not a weight of the "
                       "base"
                     : "only lora_A and lora_B of its linears can");
        }
    }

    std::string where(const std::string& name) const { return cat(file_.path(), ":", name); }
    void add(const std::string& name, const std::string& what, const std::string& hint = "") {
        faults_.add(where(name), what, hint);
    }

    static constexpr const char* head_lora = "base_model.model.lm_head.lora_";

    AdapterConfig config_;
    SafetensorsFile file_;
    const WeightSource& base_;
    const ModelSpec& model_;
    CappedProblems faults_;
    std::set<std::string> known_;
    std::map<std::string, Product> products_;
};

/// Adds rows [first, first + rows.rows) of the product.
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

/// How the model's files have experts (packed_experts.h).
bool has_whole_experts(const ModelSpec& model) {
    return has_experts(model) && (model.experts()->names == ExpertNames::gpt_oss ||
                                  model.experts()->names == ExpertNames::granitemoe);
}
bool are_gates_and_ups_in_turn(const ModelSpec& model) {
    return has_experts(model) && model.experts()->names == ExpertNames::gpt_oss;
}

/// Adds a matrix of an expert to the last piece, which is that of its layer and kind, or becomes
/// so. [E, outputs, in]; in turn [E, in, outputs].
void add_to_experts(Piece matrix, const ModelSpec& model, std::vector<Piece>& gate_up,
                    std::vector<Piece>& down) {
    const std::int64_t layer = layer_in_name(matrix.name);
    const bool is_down = is_name_of(matrix.name, Linear::down);
    std::vector<Piece>& pieces = is_down ? down : gate_up;
    const std::string name = cat("model.layers.", layer, ".",
                                 is_down ? tensor_of_experts_down : tensor_of_experts_gate_up);
    if (pieces.empty() || pieces.back().name != name) {
        const std::int64_t outputs = matrix.shape[0] * (is_down ? 1 : 2);
        const bool in_turn = are_gates_and_ups_in_turn(model);
        Piece whole{name, {model.experts()->count, outputs, matrix.shape[1]}, matrix.dtype};
        whole.in_turn = in_turn;
        if (in_turn) std::swap(whole.shape[1], whole.shape[2]);
        pieces.push_back(whole);
    }
    pieces.back().parts.push_back(std::move(matrix));
}

std::vector<Piece> pieces_of(const WeightSource& base, const AdapterProducts& products) {
    std::vector<Piece> pieces;
    std::vector<Piece> gate_up;
    std::vector<Piece> down;
    const ModelSpec& model = base.spec();
    for (const BaseTensor& tensor : base_tensors(model)) {
        Piece piece{tensor.name, tensor.shape, base.dense_type_of(tensor.name),
                    products.of(tensor.name)};
        if (has_whole_experts(model) && expert_in_name(tensor.name) != no_expert) {
            add_to_experts(std::move(piece), model, gate_up, down);
            continue;
        }
        const std::int64_t layer = layer_in_name(tensor.name);
        piece.in_turn = are_gates_and_ups_in_turn(model) && layer >= 0 &&
                        tensor.name == layer_tensor_name(layer, LayerTensor::experts_gate_up_bias,
                                                         model.layer(layer));
        pieces.push_back(std::move(piece));
    }
    pieces.insert(pieces.end(), gate_up.begin(), gate_up.end());
    pieces.insert(pieces.end(), down.begin(), down.end());
    for (std::int64_t layer = 0; layer < base.spec().layers; ++layer) {
        const LayerSpec& of = base.spec().layer(layer);
        if (!has_activation_weights(of)) continue;
        const DType type =
            base.dense_type_of(layer_tensor_name(layer, LayerTensor::xielu_positive, of));
        pieces.push_back({activation_constant_name(layer, "beta"), {}, type, nullptr, 0.5F});
        pieces.push_back({activation_constant_name(layer, "eps"), {}, type, nullptr, -1e-6F});
    }
    return pieces;
}

void write_rows(const TensorView& rows, DType dtype, OutputFile& file) {
    const auto count = static_cast<std::size_t>(rows.rows * rows.cols);
    if (dtype == DType::f32) return file.write(rows.data, count * sizeof(float));
    std::vector<BFloat16> rounded(count);
    std::transform(rows.f32(), rows.f32() + count, rounded.begin(), to_bfloat16);
    file.write(rounded.data(), count * sizeof(BFloat16));
}

/// Rows from `first` on, with the adapter.
void read_merged_rows(const Piece& piece, const WeightSource& base, std::int64_t first,
                      const TensorView& rows) {
    if (!piece.constant) base.read_rows(piece.name, first, rows);
    if (piece.product == nullptr) return;
    add_product(*piece.product, first, rows);
    check_finite(FloatFormat::f32, rows.f32(), rows.rows * rows.cols, first * rows.cols,
                 piece.name + " with the adapter");
}

/// to[i, 2 j] = row i's j of the first half, to[i, 2 j + 1] that of the second.
void take_in_turn(const TensorView& rows) {
    const std::int64_t half = rows.cols / 2;
    std::vector<float> row(static_cast<std::size_t>(rows.cols));
    for (std::int64_t i = 0; i < rows.rows; ++i) {
        float* values = rows.f32() + i * rows.ld;
        std::copy_n(values, rows.cols, row.begin());
        for (std::int64_t j = 0; j < rows.cols; ++j) {
            values[j] = row[static_cast<std::size_t>(j % 2 * half + j / 2)];
        }
    }
}

/// [in, outputs] of an expert's matrices [out, in], whose outputs take turns.
void write_in_turn(std::span<const Piece> matrices, const WeightSource& base, OutputFile& file) {
    const std::int64_t outputs = matrices[0].shape[0];
    const std::int64_t inputs = matrices[0].shape[1];
    const auto count = std::ssize(matrices);
    std::vector<std::vector<float>> values;
    for (const Piece& matrix_of : matrices) {
        std::vector<float>& own = values.emplace_back(static_cast<std::size_t>(outputs * inputs));
        read_merged_rows(matrix_of, base, 0, matrix(own.data(), DType::f32, outputs, inputs));
    }
    const std::int64_t cols = count * outputs;
    const std::int64_t at_once = std::clamp<std::int64_t>(block_floats / cols, 1, inputs);
    std::vector<float> block(static_cast<std::size_t>(at_once * cols));
    for (std::int64_t first = 0; first < inputs; first += at_once) {
        const std::int64_t rows = std::min(at_once, inputs - first);
        share_rows(rows, cols, [&](std::int64_t begin, std::int64_t end) {
            for (std::int64_t i = begin; i < end; ++i) {
                for (std::int64_t j = 0; j < cols; ++j) {
                    const std::vector<float>& from = values[static_cast<std::size_t>(j % count)];
                    block[static_cast<std::size_t>(i * cols + j)] =
                        from[static_cast<std::size_t>(j / count * inputs + first + i)];
                }
            }
        });
        write_rows(matrix(block.data(), DType::f32, rows, cols), matrices[0].dtype, file);
    }
}

void write_piece(const Piece& piece, const WeightSource& base, OutputFile& file);

void write_experts(const Piece& whole, const WeightSource& base, OutputFile& file) {
    if (!whole.in_turn) {
        for (const Piece& part : whole.parts) write_piece(part, base, file);
        return;
    }
    const auto together = whole.parts.size() / static_cast<std::size_t>(whole.shape[0]);
    const std::span<const Piece> parts = whole.parts;
    for (std::size_t first = 0; first < parts.size(); first += together) {
        write_in_turn(parts.subspan(first, together), base, file);
    }
}

void write_piece(const Piece& piece, const WeightSource& base, OutputFile& file) {
    if (!piece.parts.empty()) return write_experts(piece, base, file);
    const bool vector = piece.shape.size() < 2;
    const std::int64_t cols = piece.shape.empty() ? 1 : piece.shape.back();
    const std::int64_t rows = vector ? 1 : piece.shape[0];
    const std::int64_t at_once = std::clamp<std::int64_t>(block_floats / cols, 1, rows);
    std::vector<float> block(static_cast<std::size_t>(at_once * cols), piece.constant.value_or(0));
    for (std::int64_t first = 0; first < rows; first += at_once) {
        const TensorView view =
            matrix(block.data(), DType::f32, std::min(at_once, rows - first), cols);
        read_merged_rows(piece, base, first, view);
        if (piece.in_turn) take_in_turn(view);
        write_rows(view, piece.dtype, file);
    }
}

std::string name_in_shard(const Piece& piece, const WeightSource& base) {
    return name_in_files(base.spec(), piece.name);
}

std::vector<std::int64_t> shape_in_files(const Piece& piece) {
    if (!is_convolution_name(piece.name)) return piece.shape;
    return {piece.shape[0], 1, piece.shape[1]};
}

void write_shard(const std::string& path, const std::vector<Piece>& pieces,
                 const WeightSource& base, TaskProgress& progress) {
    Json header;
    header["__metadata__"]["format"] = "pt";
    std::uint64_t begin = 0;
    for (const Piece& piece : pieces) {
        const std::uint64_t end = begin + piece.bytes();
        header[name_in_shard(piece, base)] = {{"dtype", piece.dtype == DType::f32 ? "F32" : "BF16"},
                                              {"shape", shape_in_files(piece)},
                                              {"data_offsets", {begin, end}}};
        begin = end;
    }
    std::string text = dump_json(header);
    text.resize((text.size() + 7) / 8 * 8, ' ');
    const std::uint64_t bytes = text.size();
    OutputFile file(path);
    file.write(&bytes, sizeof(bytes));
    file.write(text.data(), text.size());
    for (const Piece& piece : pieces) {
        write_piece(piece, base, file);
        progress.add(piece.bytes());
    }
    file.close();
}

std::vector<std::vector<Piece>> shards_of(const std::vector<Piece>& pieces, std::uint64_t most) {
    std::vector<std::vector<Piece>> shards;
    std::uint64_t bytes = 0;
    for (const Piece& piece : pieces) {
        if (shards.empty() || bytes + piece.bytes() > most) {
            shards.emplace_back();
            bytes = 0;
        }
        bytes += piece.bytes();
        shards.back().push_back(piece);
    }
    return shards;
}

std::string shard_name(std::size_t shard, std::size_t count) {
    if (count == 1) return "model.safetensors";
    char name[64];
    std::snprintf(name, sizeof(name), "model-%05zu-of-%05zu.safetensors", shard + 1, count);
    return name;
}

void write_weights(const std::string& dir, const std::vector<std::vector<Piece>>& shards,
                   const WeightSource& base, MergeReport& report) {
    Json map = Json::object();
    for (std::size_t i = 0; i < shards.size(); ++i) {
        for (const Piece& piece : shards[i]) {
            map[name_in_shard(piece, base)] = shard_name(i, shards.size());
            report.bytes += piece.bytes();
        }
    }
    TaskProgress progress("writing " + dir, report.bytes);
    for (std::size_t i = 0; i < shards.size(); ++i) {
        write_shard(cat(dir, "/", shard_name(i, shards.size())), shards[i], base, progress);
    }
    report.files = std::ssize(shards);
    if (shards.size() == 1) return;
    const Json index = {{"metadata", {{"total_size", report.bytes}}}, {"weight_map", map}};
    write_text_atomic(dir + "/model.safetensors.index.json", dump_json(index, 2) + "\n");
}

void write_config(const std::string& dir, const WeightSource& base) {
    Json config = parse_json(base.config(), "config.json");
    config.erase("quantization_config");
    config.erase("torch_dtype");
    const DType type = base.dense_type_of(embedding_name);
    config["dtype"] = type == DType::f32 ? "float32" : "bfloat16";
    write_text_atomic(dir + "/config.json", dump_json(config, 2) + "\n");
}

}  // namespace

MergeReport merge_adapter(const std::string& dir, const WeightSource& base,
                          const std::string& output, std::uint64_t shard_bytes) {
    if (fs::exists(output)) throw InputError(output, "exists already", "choose another folder");
    const AdapterProducts products(dir, base);
    MergeReport report;
    report.modules = products.count();
    const std::string temporary = output + ".tmp";
    fs::remove_all(temporary);
    make_directory(temporary);
    try {
        write_weights(temporary, shards_of(pieces_of(base, products), shard_bytes), base, report);
    } catch (const InputError&) {
        fs::remove_all(temporary);
        throw;
    }
    write_config(temporary, base);
    copy_tokenizer_files(base.base_model_name(), temporary);
    fs::rename(temporary, output);
    return report;
}

}  // namespace loratrain
