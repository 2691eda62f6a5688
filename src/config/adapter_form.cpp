#include "config/adapter_form.h"

namespace loratrain {

namespace {

std::int64_t extent(Axis axis, std::int64_t rank, const LinearShape& linear) {
    switch (axis) {
        case Axis::rank:
            return rank;
        case Axis::in:
            return linear.in;
        case Axis::out:
            return linear.out;
    }
    return 0;
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

std::vector<std::int64_t> tensor_shape(const FormTensor& tensor, std::int64_t rank,
                                       const LinearShape& linear) {
    std::vector<std::int64_t> shape;
    shape.reserve(tensor.axes.size());
    for (const Axis axis : tensor.axes) shape.push_back(extent(axis, rank, linear));
    return shape;
}

}  // namespace loratrain
