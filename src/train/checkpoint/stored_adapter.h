#pragma once

#include <string>
#include <vector>

#include "adapter/adapter_bank.h"

namespace loratrain {

/// An adapter's file in a checkpoint: a safetensors file of its parameters (PEFT names) and both
/// moments (the same names with a suffix), with the counters of steps as metadata.

/// A part of an adapter's state that is stored, and what its tensors' names end with.
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

/// `tensors`: of all stored parts, with their suffixes.
void write_stored_adapter(const std::string& path, const std::vector<NamedTensor>& tensors,
                          const AdapterBank::Counters& counters);

/// InputError with every tensor or counter that is not what the adapter could have left.
void check_stored_adapter(const std::string& path, const AdapterJob& adapter,
                          const ModelSpec& model);

/// The same for a file of its parameters alone, as it is exported.
void check_stored_parameters(const std::string& path, const AdapterJob& adapter,
                             const ModelSpec& model);

/// The stage's part of it into the bank.
void load_stored_adapter(const std::string& path, const AdapterJob& job, const ModelSpec& model,
                         const StagePlan& stage, AdapterId adapter, AdapterBank& bank);

/// What of it is exported.
std::vector<NamedTensor> stored_parameters(const std::string& path, const AdapterJob& adapter,
                                           const ModelSpec& model);

}  // namespace loratrain
