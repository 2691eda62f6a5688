#include "model/vera_linear.h"

namespace loratrain {

void VeraLinear::make_factor(AdapterId adapter, std::int32_t layer, Linear linear) {
    if (!bank_.projects(adapter, layer, linear)) return;
    const Made wanted{layer, bank_.version(adapter)};
    Made& made = made_[{adapter, linear}];
    if (made == wanted) return;
    backend_.vera_product(bank_.projected(adapter, layer, linear).of);
    made = wanted;
}

void VeraLinear::take_gradients(const LayerRows& rows, std::int32_t layer, Linear linear) const {
    for (const AdapterId adapter : rows.adapters) {
        if (!bank_.projects(adapter, layer, linear)) continue;
        backend_.vera_gradients(bank_.projected(adapter, layer, linear));
    }
}

}  // namespace loratrain
