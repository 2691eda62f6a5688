#pragma once

#include "config/adapter_form.h"

namespace loratrain::test {

// Roles that no form has.
inline constexpr TensorRole made_up_vector{200};
inline constexpr TensorRole made_up_frozen{201};

/// A form with all that the table can say and LoRA does not: a vector, another rate for B, and a
/// tensor that is not trained. No operator knows it.
inline AdapterForm made_up_form() {
    AdapterForm form = lora_form();
    form.tensors[1].rate_group = 1;
    form.tensors.push_back({.role = made_up_vector,
                            .axes = {Axis::out},
                            .initial = Initial::uniform,
                            .name = "m",
                            .peft_suffix = "lora_magnitude_vector"});
    form.tensors.push_back({.role = made_up_frozen,
                            .axes = {Axis::rank},
                            .initial = Initial::uniform,
                            .trained = false,
                            .name = "s",
                            .peft_suffix = "lora_scale"});
    form.rates = {1.0, 16.0};
    form.peft_switches = {"use_dora"};
    return form;
}

}  // namespace loratrain::test
