#pragma once

#include <cstdint>

namespace loratrain {

/// What the gate of an MLP goes through (names of HF hidden_act).
///   silu: x / (1 + e^-x)
///   gelu_tanh ("gelu_pytorch_tanh"): x / 2 (1 + tanh(sqrt(2 / pi) (x + 0.044715 x³)))
///     (Hendrycks and Gimpel 2016, "Gaussian Error Linear Units"; Shazeer 2020 as GeGLU)
///   xielu: of an MLP without a gate, up goes through it; with two weights of each layer
///     (backend/ops/elementwise.h, Xielu)
enum class Activation : std::uint8_t { silu, gelu_tanh, xielu };

}  // namespace loratrain
