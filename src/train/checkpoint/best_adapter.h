#pragma once

#include <string>
#include <vector>

#include "io/safetensors.h"
#include "train/checkpoint/run_state.h"

namespace loratrain {

/// Writes, keeps and restores the best state of an adapter.

/// adapters/<name>/best/: the adapter at its lowest eval loss, a PEFT directory with a file BEST
/// that has step and loss. All functions here: root only. Writes the folder, or replaces it as a
/// whole.
void write_best_adapter(const Job& job, const ModelSpec& model, const AdapterState& state,
                        AdapterId adapter, std::vector<NamedTensor> tensors);

/// Name of the weights of best/ in a checkpoint directory: "<name>.best", a safetensors file.
std::string kept_best_name(const AdapterJob& adapter);

/// Copies the weights of every best/ into a checkpoint directory, since `state` may be continued
/// after a later best was written. If the weights of a best/ are damaged, copies the weights of the
/// checkpoint before, which is in the same folder, with a warning. Error if these are damaged too.
void keep_best_adapters(const Job& job, const RunState& state, const std::string& checkpoint);

/// Makes an adapter's best/ that of `state`, from its checkpoint. Removes it if the checkpoint has
/// none or is "".
void restore_best_adapter(const Job& job, const ModelSpec& model, const RunState& state,
                          AdapterId adapter, const std::string& checkpoint);

/// Calls restore_best_adapter() for every adapter, and removes best/ of adapters that `state` does
/// not know. `checkpoint` = "": a start at step 0, removes all.
void restore_best_adapters(const Job& job, const ModelSpec& model, const RunState& state,
                           const std::string& checkpoint);

}  // namespace loratrain
