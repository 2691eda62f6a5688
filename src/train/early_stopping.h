#pragma once

#include <string>

#include "train/checkpoint/run_state.h"

namespace loratrain {

/// Takes an evaluation during training (after `step` steps, adapter.last_eval_loss) into the
/// adapter's record; true when it is the best so far. Evaluations without improvement are counted
/// as Hugging Face's EarlyStoppingCallback does: an improvement is a decrease by more than
/// early_stopping_threshold below the best loss. A loss that is not finite is none.
bool note_evaluation(const EvalJob& eval, std::int32_t step, AdapterState& adapter);

/// Why the adapter is to be ended early, "" = it is not.
std::string early_stop_reason(const EvalJob& eval, const AdapterState& adapter);

}  // namespace loratrain
