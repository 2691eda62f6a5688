#pragma once

#include <string>
#include <vector>

#include "io/safetensors.h"
#include "train/checkpoint/run_state.h"

namespace loratrain {

/// adapters/<name>/best/: the adapter as it was at its lowest eval loss, a PEFT directory with a
/// file BEST that says step and loss. It is replaced as a whole. All of this: root only.
void write_best_adapter(const Job& job, const ModelSpec& model, const AdapterState& state,
                        AdapterId adapter, const std::vector<NamedTensor>& tensors);

/// Name of a best/'s weights in a checkpoint directory: "<name>.best", a safetensors file.
std::string kept_best_name(const AdapterJob& adapter);

/// Puts copies of the weights of every best/ into a checkpoint directory, as `state` may be
/// continued after a later best was written. Where they have been damaged since the checkpoint
/// before, which is in the same folder, its copies, with a warning; Error where those are damaged
/// too.
void keep_best_adapters(const Job& job, const RunState& state, const std::string& checkpoint);

/// Makes an adapter's best/ that of `state`, from its checkpoint; removes it where that has none or
/// is "".
void restore_best_adapter(const Job& job, const ModelSpec& model, const RunState& state,
                          AdapterId adapter, const std::string& checkpoint);

/// Makes every best/ that of `state`, from its checkpoint; removes those it does not know.
/// `checkpoint` "": a start at step 0, all are removed.
void restore_best_adapters(const Job& job, const ModelSpec& model, const RunState& state,
                           const std::string& checkpoint);

}  // namespace loratrain
