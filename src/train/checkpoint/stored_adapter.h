#pragma once

#include <string>
#include <vector>

#include "adapter/adapter_bank.h"

namespace loratrain {

/// An adapter's file in a checkpoint: a safetensors file of its parameters (PEFT names) and both
/// moments (the same names with a suffix), with the counters of steps as metadata.

/// A stored part of an adapter's state, and the suffix of its tensors' names.
struct StoredPart {
    AdapterBank::Part part;
    const char* suffix;
};
inline constexpr StoredPart stored_parts[] = {
    {AdapterBank::Part::parameters, ""},
    {AdapterBank::Part::first_moments, ".exp_avg"},
    {AdapterBank::Part::second_moments, ".exp_avg_sq"},
};

/// Name of the file in the checkpoint's directory.
std::string stored_adapter_name(const AdapterJob& adapter);

/// Writes the file and returns its checksum. `tensors`: those of all stored parts, with suffixes.
std::string write_stored_adapter(const std::string& path, const std::vector<TensorSource>& tensors,
                                 const AdapterBank::Counters& counters);

/// InputError that lists every tensor or counter that the adapter cannot have left.
void check_stored_adapter(const std::string& path, const AdapterJob& adapter,
                          const ModelSpec& model);

/// The same check for an exported file, which has parameters only.
void check_stored_parameters(const std::string& path, const AdapterJob& adapter,
                             const ModelSpec& model);

/// Loads the stage's part of the file into the bank.
void load_stored_adapter(const std::string& path, const AdapterJob& job, const ModelSpec& model,
                         const StagePlan& stage, AdapterId adapter, AdapterBank& bank);

/// The exported parameters in the file.
std::vector<NamedTensor> stored_parameters(const std::string& path, const AdapterJob& adapter,
                                           const ModelSpec& model);

}  // namespace loratrain
