#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "config/model_spec.h"
#include "io/adapters/adapter_config.h"
#include "io/json_text.h"
#include "io/safetensors.h"

namespace loratrain {

/// The files of an adapter's directory, and what in them fits neither the base nor a loader.

/// An adapter as its files tell it. Values of tensors are not read.
struct ExportFiles {
    AdapterConfig config;
    std::vector<ConfigVariant> variants;
    std::optional<AdapterJob> job;  ///< what the config says of modules, where it can be read
    std::string unreadable;         ///< else why not
    std::map<std::string, SafetensorsEntry> tensors;
    std::map<std::string, std::int64_t> ranks;  ///< of modules with lora_A, by name in the base
    std::set<Linear> linears;                   ///< that have LoRA

    const Json& get(const char* key) const { return config.get(key); }
    bool has(const char* key) const { return config.has(key); }
    bool is_lora() const { return get("peft_type") == "LORA"; }
    std::int64_t largest_rank() const {
        std::int64_t largest = 0;
        for (const auto& [module, rank] : ranks) largest = std::max(largest, rank);
        return largest;
    }
};

/// InputError where the directory cannot be read.
ExportFiles read_export_files(const std::string& dir, const ModelSpec& model);

/// Names and shapes that the loader can do nothing with, as those of another base model.
std::vector<std::string> faults_of_tensors(const ExportFiles& of, Loader loader,
                                           const ModelSpec& model);

/// Tensors that are neither A nor B of a module, without the base's own.
std::vector<std::string> other_tensors(const ExportFiles& of);

/// Tensors that PEFT has no place for in plain LoRA.
std::vector<std::string> tensors_left_out(const ExportFiles& of);

}  // namespace loratrain
