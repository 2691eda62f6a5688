#pragma once

#include <string>
#include <vector>

#include "io/safetensors.h"
#include "train/checkpoint/run_state.h"

namespace loratrain {

/// Writes and checks the directories of finished adapters.

/// Writes adapters/<name>/ of an adapter that has ended: a PEFT directory with a file DONE. Root
/// only.
void write_export(const Job& job, const ModelSpec& model, const AdapterState& state,
                  AdapterId adapter, const std::vector<NamedTensor>& tensors);

/// Checks the exports of a run that continues from directory `checkpoint`. A weights file that
/// differs from the checkpoint, a config that does not fit, or a missing file is a warning, and the
/// export is written again. Root only.
void mend_exports(const Job& job, const ModelSpec& model, const RunState& state,
                  const std::string& checkpoint);

}  // namespace loratrain
