#pragma once

#include <cstdint>
#include <vector>

#include "io/safetensors.h"
#include "train/checkpoint/run_state.h"

namespace loratrain {

/// exports/<name>/step-<n>/: an adapter after n of its steps (export.every_steps), for programs
/// that write texts with it while it trains. A PEFT directory with a file READY. A directory of
/// that name is whole at every moment at which it is there. Root only.

/// Writes the directory, or replaces it as a whole. Then removes all but the newest export.keep of
/// the adapter.
void write_step_export(const Job& job, const ModelSpec& model, AdapterId adapter, std::int32_t step,
                       const std::vector<NamedTensor>& tensors);

/// The directory is there.
bool has_step_export(const Job& job, AdapterId adapter, std::int32_t step);

/// Removes what a start before has left of steps behind `state`, which are trained again, and
/// directories that it did not complete.
void restore_step_exports(const Job& job, const RunState& state);

}  // namespace loratrain
