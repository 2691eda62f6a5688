#include "train/start_key.h"

#include "base/text.h"
#include "config/adapter_form.h"
#include "config/targets_text.h"

namespace loratrain {

namespace {

/// Evaluations of losses without rewards are plain cross-entropy, whatever the other keys say.
LossJob evaluated_loss(const LossJob& loss) {
    if (loss.has_rewards()) return loss;
    LossJob plain;
    plain.loss = loss.loss;
    return plain;
}

}  // namespace

std::optional<StartKey> start_key(const AdapterJob& adapter) {
    if (!adapter.init_from.empty() || has_residual_start(adapter.form)) return {};
    StartKey key{reference_of(adapter), evaluated_loss(adapter.loss), ""};
    if (adapter.form.keeps_norms) {
        if (adapter.modules) return {};
        key.form = cat("DoRA on ", targets_text(adapter));
    }
    return key;
}

}  // namespace loratrain
