#include "config/adapter_form.h"

#include <algorithm>

namespace loratrain {

namespace {

std::int64_t extent(const FormTensor& tensor, Axis axis, std::int64_t rank,
                    const LinearShape& linear) {
    switch (axis) {
        case Axis::rank:
            return rank;
        case Axis::in:
            return linear.in;
        case Axis::out:
            return linear.out;
        case Axis::tokens:
            return tensor.tokens;
    }
    return 0;
}

bool has_role(const AdapterForm& form, TensorRole role) {
    return std::any_of(form.tensors.begin(), form.tensors.end(),
                       [role](const FormTensor& tensor) { return tensor.role == role; });
}

}  // namespace

AdapterForm lora_form() {
    AdapterForm form;
    form.tensors = {{.role = TensorRole::a,
                     .axes = {Axis::rank, Axis::in},
                     .initial = Initial::uniform,
                     .name = "lora_A",
                     .peft_suffix = "lora_A.weight"},
                    {.role = TensorRole::b,
                     .axes = {Axis::out, Axis::rank},
                     .initial = Initial::zeros,
                     .name = "lora_B",
                     .peft_suffix = "lora_B.weight"}};
    return form;
}

AdapterForm dora_form() {
    AdapterForm form = lora_form();
    form.tensors.push_back({.role = TensorRole::magnitude,
                            .axes = {Axis::out},
                            .initial = Initial::norms,
                            .name = "lora_magnitude_vector",
                            .peft_suffix = "lora_magnitude_vector"});
    form.peft_switches = {"use_dora"};
    form.keeps_norms = true;
    return form;
}

AdapterForm residual_start_form(Initial initial) {
    AdapterForm form = lora_form();
    form.tensors.push_back({.role = TensorRole::start_a,
                            .axes = {Axis::rank, Axis::in},
                            .trained = false,
                            .name = "lora_start_A",
                            .peft_suffix = "lora_start_A.weight"});
    form.tensors.push_back({.role = TensorRole::start_b,
                            .axes = {Axis::rank, Axis::out},
                            .trained = false,
                            .name = "lora_start_B",
                            .peft_suffix = "lora_start_B.weight"});
    for (FormTensor& tensor : form.tensors) tensor.initial = initial;
    return form;
}

AdapterForm vera_form(double d_initial) {
    AdapterForm form;
    form.tensors = {{.role = TensorRole::scale_d,
                     .axes = {Axis::rank},
                     .initial = Initial::constant,
                     .value = d_initial,
                     .name = "vera_lambda_d",
                     .peft_suffix = "vera_lambda_d"},
                    {.role = TensorRole::scale_b,
                     .axes = {Axis::out},
                     .initial = Initial::zeros,
                     .name = "vera_lambda_b",
                     .peft_suffix = "vera_lambda_b"}};
    form.peft_type = "VERA";
    form.projects = true;
    return form;
}

FormTensor token_rows(std::int64_t tokens) {
    return {.role = TensorRole::token_rows,
            .axes = {Axis::tokens, Axis::out},
            .initial = Initial::rows,
            .tokens = tokens,
            .name = "trainable_tokens_delta",
            .peft_suffix = "token_adapter.trainable_tokens_delta"};
}

bool has_residual_start(const AdapterForm& form) {
    return has_role(form, TensorRole::start_a);
}

bool has_token_rows(const AdapterForm& form) {
    return has_role(form, TensorRole::token_rows);
}

FormTensor on_linear(const FormTensor& tensor, Linear linear) {
    FormTensor result = tensor;
    if (linear != Linear::embedding || tensor.role == TensorRole::token_rows) return result;
    const bool is_a = tensor.role == TensorRole::a;
    result.initial = is_a ? Initial::zeros : Initial::normal;
    result.name = is_a ? "lora_embedding_A" : "lora_embedding_B";
    result.peft_suffix = result.name;
    return result;
}

std::vector<std::int64_t> tensor_shape(const FormTensor& tensor, std::int64_t rank,
                                       const LinearShape& linear) {
    std::vector<std::int64_t> shape;
    shape.reserve(tensor.axes.size());
    for (const Axis axis : tensor.axes) shape.push_back(extent(tensor, axis, rank, linear));
    return shape;
}

}  // namespace loratrain
