#pragma once

#include <string>
#include <vector>

#include "config/model_spec.h"

namespace loratrain {

/// Which programs load an adapter's directory, and why others do not.

/// What a program that serves adapters makes of an adapter's directory.
struct LoaderResult {
    std::string loader;
    std::vector<std::string> obstacles;  ///< why it does not load, or computes something else
    std::vector<std::string> advice;     ///< what it needs besides, or older versions do not know
    std::string unknown;                 ///< why neither is known here; "" = it can
    bool loads() const { return obstacles.empty() && unknown.empty(); }
};

/// PEFT, vLLM, SGLang and llama.cpp on the PEFT directory `dir`, whoever wrote it, for a base
/// model. The rules are those of their sources in 2026 (PEFT 0.21; vLLM 0.33 lora/peft_helper.py
/// and lora/lora_model.py; SGLang lora/lora_config.py; llama.cpp convert_lora_to_gguf.py), written
/// out as conditions on adapter_config.json (adapter_config.h has what each key means to them) and
/// on names, types and shapes of tensors: no program of theirs runs, and values are not read.
/// InputError where the directory cannot be read.
std::vector<LoaderResult> check_loaders(const std::string& dir, const ModelSpec& model);

}  // namespace loratrain
