#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "config/model_spec.h"

namespace loratrain {

/// A form of LoRA as the table of the tensors that it keeps for every linear it targets. All that
/// stores an adapter follows the table: memory model, bank (adapter/adapter_layout.h), initial
/// values, checkpoints, PEFT directories. Only what an operator computes is not in it: operators
/// ask the bank for tensors by their role.

/// What a tensor is to the operators: y = W x + scale * B (A x); of DoRA that times m / |W + scale
/// * B A| row by row (model/dora_linear.cpp). PiSSA and OLoRA take from W what they start with: y =
/// W x + scale * (B A - B0 A0) x, where the base that adapters share stays as it is. Of VeRA y =
/// W x + diag(scale_b) B diag(scale_d) A x, where A and B are corners of two random matrices that
/// all of its linears share (io/adapters/vera_projections.h).
enum class TensorRole : std::uint8_t {
    a,
    b,
    magnitude,
    start_a,  ///< A0 [rank, in]
    start_b,  ///< B0 transposed, [rank, out]
    scale_d,  ///< [rank]
    scale_b,  ///< [out]
};

/// Axes of tensors: the adapter's rank, the in- and out-features of the linear. Under tensor
/// parallelism a lane has its part of the axis along which W is cut, and the others whole.
enum class Axis : std::uint8_t { rank, in, out };

/// What a tensor begins with.
enum class Initial : std::uint8_t {
    zeros,
    constant,  ///< FormTensor::value
    uniform,   ///< U(-1/sqrt(in), 1/sqrt(in)), as PEFT
    gaussian,  ///< N(0, 1/rank²), as PEFT
    normal,    ///< N(0, 1), as PEFT on embeddings
    norms,     ///< of the rows of W, in fp32
    pissa,     ///< the largest singular triplets of W (adapter/start_factors.h)
    olora,     ///< the first columns of Q and rows of R of W = Q R, likewise
};

struct FormTensor {
    TensorRole role{};
    std::vector<Axis> axes;  ///< row-major
    Initial initial = Initial::zeros;
    bool trained = true;         ///< has a gradient and moments; else it stays as it began
    std::size_t rate_group = 0;  ///< of a trained one, in AdapterForm::rates
    double value = 0.0;          ///< of Initial::constant
    std::string name;            ///< behind the module's path the key of its random numbers
    std::string peft_suffix;     ///< behind the module's path its name in files
};

struct AdapterForm {
    std::vector<FormTensor> tensors;
    std::vector<double> rates{1.0};  ///< per rate group, times the adapter's learning rate
    std::string peft_type = "LORA";
    std::vector<std::string> peft_switches;  ///< of adapter_config.json, those that are true
    /// Beside its tensors, which files have, it keeps |W + scale B A|² of the rows of W.
    bool keeps_norms = false;
    /// Beside its tensors it keeps projections and, of one layer at a time, the factors that they
    /// and its tensors make with their gradients (AdapterBank::projected).
    bool projects = false;
};

/// A [rank, in], uniform; B [out, rank], zeros; one rate (Hu et al., 2021; PEFT).
AdapterForm lora_form();

/// And m [out], the norms of the rows of W (Liu et al., 2024; PEFT).
AdapterForm dora_form();

/// A residual start: LoRA, and A0 and B0, with which A and B start as `initial` says, pissa (Meng
/// et al., 2024) or olora (Büyükakyüz, 2024); frozen. Exported as LoRA of twice the rank
/// (io/adapters/exported_adapter.h).
AdapterForm residual_start_form(Initial initial);
bool has_residual_start(const AdapterForm& form);

/// VeRA (Kopiczko et al., 2024; PEFT): scale_d [rank], all d_initial, and scale_b [out], zeros.
AdapterForm vera_form(double d_initial);

/// A tensor of LoRA as it is on `linear`: on an embedding A starts as zeros and B as N(0, 1), under
/// other names (PEFT).
FormTensor on_linear(const FormTensor& tensor, Linear linear);

std::vector<std::int64_t> tensor_shape(const FormTensor& tensor, std::int64_t rank,
                                       const LinearShape& linear);

}  // namespace loratrain
