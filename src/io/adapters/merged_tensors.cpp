#include "io/adapters/merged_tensors.h"

#include <algorithm>
#include <span>
#include <utility>

#include "base/error.h"
#include "base/threads.h"
#include "config/job_words.h"
#include "config/layer_tensors.h"
#include "io/capped_problems.h"
#include "io/float_convert.h"
#include "io/tensor_names.h"

namespace loratrain {

namespace {

constexpr std::int64_t block_floats = 2 << 20;

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

/// Rows of a matrix on their way into a form.
struct CodedRows {
    const RowForm& form;
    std::uint8_t* codes;   ///< of the first row
    std::uint8_t* scales;  ///< likewise
    std::int64_t step;     ///< from a row of `codes` to the next of this matrix
};

/// Codes rows [first, first + count) of a matrix.
void code_rows(const Piece& piece, const WeightSource& base, std::int64_t first, std::int64_t count,
               const CodedRows& to) {
    const std::int64_t cols = piece.shape[1];
    const std::uint64_t code_row = to.form.code_bytes(cols);
    const std::uint64_t scale_row = to.form.scale_bytes(cols);
    const auto block = [&] { return std::vector<float>(static_cast<std::size_t>(count * cols)); };
    const auto view = [&](std::vector<float>& of) {
        return matrix(of.data(), DType::f32, count, cols);
    };
    std::vector<float> merged = block();
    read_merged_rows(piece, base, first, view(merged));
    std::vector<float> original;
    std::vector<float> change;
    std::vector<ChangeSums> of_rows;
    if (piece.sums != nullptr) {
        original = block();
        base.read_rows(piece.name, first, view(original));
        change = block();
        add_product(*piece.product, first, view(change));
        of_rows.resize(static_cast<std::size_t>(count));
    }
    share_rows(count, cols, [&](std::int64_t begin, std::int64_t end) {
        const auto row = [&](const std::vector<float>& of, std::int64_t i) {
            return std::span(of).subspan(static_cast<std::size_t>(i * cols),
                                         static_cast<std::size_t>(cols));
        };
        std::vector<float> written(static_cast<std::size_t>(cols));
        std::vector<float> before(written);
        std::vector<std::uint8_t> codes(code_row);
        std::vector<std::uint8_t> scales(scale_row);
        for (std::int64_t i = begin; i < end; ++i) {
            const auto at = static_cast<std::uint64_t>(i * to.step);
            to.form.encode(row(merged, i), to.codes + at * code_row, to.scales + at * scale_row,
                           written.data());
            if (piece.sums == nullptr) continue;
            to.form.encode(row(original, i), codes.data(), scales.data(), before.data());
            of_rows[static_cast<std::size_t>(i)].add_row(cols, row(change, i).data(), before.data(),
                                                         row(merged, i).data(), written.data());
        }
    });
    for (const ChangeSums& of_row : of_rows) piece.sums->add(of_row);
}

/// A matrix, or those of all experts; gates and ups take turns, row by row. All codes, then all
/// scales, then constants.
void write_in_form(const Piece& whole, const WeightSource& base, OutputFile& file) {
    const std::span<const Piece> parts =
        whole.parts.empty() ? std::span(&whole, 1) : std::span<const Piece>(whole.parts);
    const std::int64_t together = whole.parts.empty() ? 1 : std::ssize(parts) / whole.shape[0];
    const std::int64_t rows = parts[0].shape[0];
    const std::int64_t cols = parts[0].shape[1];
    const std::uint64_t code_row = whole.form->code_bytes(cols);
    const std::uint64_t scale_row = whole.form->scale_bytes(cols);
    const std::int64_t at_once = std::clamp<std::int64_t>(block_floats / cols / together, 1, rows);
    std::vector<std::uint8_t> codes(static_cast<std::uint64_t>(at_once * together) * code_row);
    std::vector<std::uint8_t> scales(static_cast<std::uint64_t>(std::ssize(parts) * rows) *
                                     scale_row);
    std::uint8_t* scale = scales.data();
    for (std::int64_t part = 0; part < std::ssize(parts); part += together) {
        for (std::int64_t first = 0; first < rows; first += at_once) {
            const std::int64_t count = std::min(at_once, rows - first);
            for (std::int64_t i = 0; i < together; ++i) {
                const auto of = static_cast<std::uint64_t>(i);
                code_rows(
                    parts[static_cast<std::size_t>(part + i)], base, first, count,
                    {*whole.form, codes.data() + of * code_row, scale + of * scale_row, together});
            }
            const auto coded = static_cast<std::uint64_t>(count * together);
            file.write(codes.data(), coded * code_row);
            scale += coded * scale_row;
        }
    }
    file.write(scales.data(), scales.size());
    for (const FileTensor& tensor : whole.form->tensors(whole.name, whole.shape)) {
        file.write(tensor.content.data(), tensor.content.size());
    }
}

void write_piece(const Piece& piece, const WeightSource& base, OutputFile& file) {
    if (piece.form != nullptr) return write_in_form(piece, base, file);
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

std::vector<std::int64_t> shape_in_files(const Piece& piece) {
    if (!is_convolution_name(piece.name)) return piece.shape;
    return {piece.shape[0], 1, piece.shape[1]};
}

void check_blocks(const Piece& piece, const RowForm& form, MergedForm word,
                  CappedProblems& problems) {
    if (piece.shape.back() % form.block() != 0) {
        problems.add(
            piece.name,
            cat("has rows of ", piece.shape.back(), " weights, not a multiple of ", form.block(),
                " as ", word_of(merged_form_words, word), " needs"),
            word == MergedForm::nf4 ? "use --quantize int8 or fp8" : "leave --quantize out");
        return;
    }
    for (const FileTensor& tensor : form.tensors(piece.name, piece.shape)) {
        if (tensor.bytes % sizeof(float) == 0) continue;
        problems.add(tensor.name,
                     cat("has ", tensor.bytes, " bytes, not a multiple of ", sizeof(float),
                         ": programs could not read the scales behind it"),
                     "leave --quantize out");
    }
}

}  // namespace

MergedTensors::MergedTensors(const WeightSource& base, const AdapterProducts& products,
                             std::optional<MergedForm> form)
    : base_(base) {
    add_pieces(products);
    if (form) choose_forms(*form);
}

void MergedTensors::add_pieces(const AdapterProducts& products) {
    std::vector<Piece> gate_up;
    std::vector<Piece> down;
    const ModelSpec& model = base_.spec();
    for (const BaseTensor& tensor : base_tensors(model)) {
        Piece piece{tensor.name, tensor.shape, base_.dense_type_of(tensor.name),
                    products.of(tensor.name)};
        const bool in_experts = expert_in_name(tensor.name) != no_expert;
        if (in_experts && packs_experts(model.experts()->names)) {
            add_to_experts(std::move(piece), model, gate_up, down);
            continue;
        }
        const std::int64_t layer = layer_in_name(tensor.name);
        piece.in_turn = are_gates_and_ups_in_turn(model) && layer >= 0 &&
                        tensor.name == layer_tensor_name(layer, LayerTensor::experts_gate_up_bias,
                                                         model.layer(layer));
        pieces_.push_back(std::move(piece));
    }
    pieces_.insert(pieces_.end(), gate_up.begin(), gate_up.end());
    pieces_.insert(pieces_.end(), down.begin(), down.end());
    for (std::int64_t layer = 0; layer < base_.spec().layers; ++layer) {
        const LayerSpec& of = base_.spec().layer(layer);
        if (!has_activation_weights(of)) continue;
        const DType type =
            base_.dense_type_of(layer_tensor_name(layer, LayerTensor::xielu_positive, of));
        pieces_.push_back({activation_constant_name(layer, "beta"), {}, type, nullptr, 0.5F});
        pieces_.push_back({activation_constant_name(layer, "eps"), {}, type, nullptr, -1e-6F});
    }
}

void MergedTensors::give_form(Piece& piece, const RowForm& form) {
    piece.form = &form;
    for (Piece& part : piece.parts) give_form(part, form);
    if (piece.product == nullptr) return;
    constexpr std::string_view weight = ".weight";
    piece.sums = &changes_[piece.name.substr(0, piece.name.size() - weight.size())];
}

void MergedTensors::choose_forms(MergedForm form) {
    const DType model = base_.dense_type_of(embedding_name);
    forms_.push_back(rows_in(form, model));
    const RowForm& few_bits = *forms_.back();
    CappedProblems problems("the base", CappedProblems::default_limit, CappedProblems::alike_lines);
    for (Piece& piece : pieces_) {
        const bool experts = !piece.parts.empty();
        const bool coded =
            form == MergedForm::mxfp4 ? experts : !experts && is_linear_weight(piece.name);
        if (coded) {
            if (piece.in_turn) std::swap(piece.shape[1], piece.shape[2]);
            piece.in_turn = false;
            give_form(piece, few_bits);
            check_blocks(piece, few_bits, form, problems);
        } else if (piece.product != nullptr) {
            forms_.push_back(rows_of_numbers(piece.dtype));
            give_form(piece, *forms_.back());
        }
    }
    problems.throw_if_any();
}

std::vector<FileTensor> MergedTensors::in_files(const Piece& piece) const {
    const std::string name = name_in_files(base_.spec(), piece.name);
    if (piece.form != nullptr) return piece.form->tensors(name, piece.shape);
    return rows_of_numbers(piece.dtype)->tensors(name, shape_in_files(piece));
}

void MergedTensors::write(const Piece& piece, OutputFile& file) const {
    write_piece(piece, base_, file);
}

}  // namespace loratrain
