#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "config/model_spec.h"

namespace loratrain {

/// A form of LoRA: the table of the tensors that it keeps for each linear that it targets. The
/// memory model, the bank (adapter/adapter_layout.h), initial values, checkpoints and PEFT
/// directories follow this table. What operators compute is not in it; they ask the bank for
/// tensors by role.

/// The role of a tensor in what operators compute:
///   LoRA          y = W x + scale B (A x)
///   DoRA          y of LoRA times m / |W + scale B A|, row by row (model/dora_linear.cpp)
///   PiSSA, OLoRA  y = W x + scale (B A - B0 A0) x; the shared base W is not changed
///   VeRA          y = W x + diag(scale_b) B diag(scale_d) A x; A and B are corners of two random
///                 matrices that all its linears share (io/adapters/exported_adapter.h)
///   token rows    rows of W of the embedding, beside any of the above, and of the head that is
///                 tied to it: W[tokens] = token_rows (model/trained_tokens.h)
enum class TensorRole : std::uint8_t {
    a,
    b,
    magnitude,
    start_a,     ///< A0 [rank, in]
    start_b,     ///< B0 transposed, [rank, out]
    scale_d,     ///< [rank]
    scale_b,     ///< [out]
    token_rows,  ///< [tokens, out]
};

/// Axes of tensors: the adapter's rank, and the linear's in- and out-features. With tensor
/// parallelism a lane has a part of the axis along which W is cut, and the whole of the others. And
/// the adapter's trained tokens.
enum class Axis : std::uint8_t { rank, in, out, tokens };

/// The initial value of a tensor.
enum class Initial : std::uint8_t {
    zeros,
    constant,  ///< FormTensor::value
    uniform,   ///< U(-1/sqrt(in), 1/sqrt(in)), as PEFT
    gaussian,  ///< N(0, 1/rank²), as PEFT
    normal,    ///< N(0, 1), as PEFT on embeddings
    norms,     ///< of the rows of W, in fp32
    pissa,     ///< the largest singular triplets of W (adapter/start_factors.h)
    olora,     ///< the first columns of Q and rows of R of W = Q R (adapter/start_factors.h)
    rows,      ///< those of W
};

struct FormTensor {
    TensorRole role{};
    std::vector<Axis> axes;  ///< row-major
    Initial initial = Initial::zeros;
    bool trained = true;         ///< has a gradient and moments; else it stays as it began
    std::size_t rate_group = 0;  ///< index into AdapterForm::rates, if trained
    double value = 0.0;          ///< for Initial::constant
    std::int64_t tokens = 0;     ///< for Axis::tokens
    std::string name;            ///< after the module's path: the key of its random numbers
    std::string peft_suffix;     ///< after the module's path: its name in files
};

struct AdapterForm {
    std::vector<FormTensor> tensors;
    std::vector<double> rates{1.0};  ///< per rate group, times the adapter's learning rate
    std::string peft_type = "LORA";
    std::vector<std::string> peft_switches;  ///< keys that are true in adapter_config.json
    /// The bank also keeps |W + scale B A|² of each row of W; files do not have it.
    bool keeps_norms = false;
    /// The bank also keeps projections, and for one layer at a time the factors made of projections
    /// and tensors, with their gradients (AdapterBank::projected).
    bool projects = false;
};

/// A [rank, in], uniform; B [out, rank], zeros; one rate (Hu et al., 2021; PEFT).
AdapterForm lora_form();

/// LoRA and m [out], initially the norms of the rows of W (Liu et al., 2024; PEFT).
AdapterForm dora_form();

/// LoRA with a residual start: A and B start as A0 and B0, which stay frozen. `initial`: pissa
/// (Meng et al., 2024) or olora (Büyükakyüz, 2024). Exported as LoRA of twice the rank
/// (io/adapters/exported_adapter.h).
AdapterForm residual_start_form(Initial initial);
bool has_residual_start(const AdapterForm& form);

/// VeRA (Kopiczko et al., 2024; PEFT): scale_d [rank], initially d_initial; scale_b [out], zeros.
AdapterForm vera_form(double d_initial);

/// Rows of so many tokens, which start as those of the embedding (TrainableTokensLayer of PEFT).
FormTensor token_rows(std::int64_t tokens);
bool has_token_rows(const AdapterForm& form);

/// A tensor of LoRA for `linear`. On an embedding A starts as zeros and B as N(0, 1), and both have
/// other names (PEFT).
FormTensor on_linear(const FormTensor& tensor, Linear linear);

std::vector<std::int64_t> tensor_shape(const FormTensor& tensor, std::int64_t rank,
                                       const LinearShape& linear);

}  // namespace loratrain
