#include "config/start_key.h"

#include <algorithm>
#include <cstdint>
#include <vector>

#include "base/text.h"
#include "config/adapter_form.h"
#include "config/targets_text.h"

namespace loratrain {

std::optional<StartKey> start_of(const AdapterJob& adapter, const ModelSpec& model) {
    if (!adapter.init_from.empty() || has_residual_start(adapter.form)) return {};
    StartKey key{adapter.dataset, adapter.ref_adapter, adapter.loss.evaluated(), ""};
    if (adapter.form.keeps_norms) {
        if (adapter.modules) return {};
        key.form = cat("DoRA on ", targets_text(adapter));
    }
    if (model.tie_word_embeddings && has_token_rows(adapter.form)) {
        std::vector<std::int32_t> tokens = adapter.trainable_token_indices;
        std::sort(tokens.begin(), tokens.end());
        for (const std::int32_t token : tokens) key.form += cat(" token ", token);
    }
    return key;
}

}  // namespace loratrain
