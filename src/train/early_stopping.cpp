#include "train/early_stopping.h"

#include <cmath>

#include "base/text.h"

namespace loratrain {

bool note_evaluation(const EvalJob& eval, std::int32_t step, AdapterState& adapter) {
    const double loss = adapter.last_eval_loss;
    const bool first = adapter.best_step == 0;
    const bool best = std::isfinite(loss) && (first || loss < adapter.best_eval_loss);
    const bool gain =
        best && (first || adapter.best_eval_loss - loss > eval.early_stopping_threshold);
    adapter.evaluations_without_gain = gain ? 0 : adapter.evaluations_without_gain + 1;
    if (best) {
        adapter.best_eval_loss = loss;
        adapter.best_step = step;
    }
    return best;
}

std::string early_stop_reason(const EvalJob& eval, const AdapterState& adapter) {
    const int patience = eval.early_stopping_patience;
    if (patience == 0 || adapter.evaluations_without_gain < patience) return "";
    std::string reason =
        cat("no better eval loss in ", adapter.evaluations_without_gain, " evaluations");
    if (adapter.best_step == 0) return reason;
    return cat(reason, "; the best was ", format_fixed(adapter.best_eval_loss, 4), " at step ",
               adapter.best_step);
}

}  // namespace loratrain
