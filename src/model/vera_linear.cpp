#include <map>
#include <utility>

#include "model/linear_form.h"

namespace loratrain {

namespace {

/// VeRA (Kopiczko et al., 2024), as PEFT (tuners/vera/layer.py):
///
///   Y = X Wᵀ + (drop(X) Aᵀ diag(scale_d) Bᵀ) diag(scale_b) = X Wᵀ + drop(X) Aᵀ B'ᵀ
///
/// with B' = diag(scale_b) B diag(scale_d): LoRA of scaling 1 with a frozen A, whose B' is made
/// where a layer is computed and whose gradient becomes the scales' at once.
class VeraLinear : public LinearForm {
  public:
    explicit VeraLinear(const FormParts& parts)
        : LinearForm(parts.bank, TensorRole::scale_b), backend_(parts.backend) {}

    void make_factors(AdapterId adapter, std::int32_t layer, Linear linear) override {
        if (!bank_.projects(adapter, layer, linear)) return;
        const Made wanted{layer, bank_.version(adapter)};
        Made& made = made_[{adapter, linear}];
        if (made == wanted) return;
        backend_.vera_product(bank_.projected(adapter, layer, linear).of);
        made = wanted;
    }

    void take_gradients(const LinearSite& at) override {
        for (const AdapterId adapter : at.rows().adapters) {
            if (!bank_.projects(adapter, at.group->layer, at.linear)) continue;
            backend_.vera_gradients(bank_.projected(adapter, at.group->layer, at.linear));
        }
    }

  private:
    struct Made {
        std::int32_t layer = -1;
        std::int64_t version = -1;  ///< AdapterBank::version
        friend bool operator==(const Made&, const Made&) = default;
    };

    Backend& backend_;
    std::map<std::pair<AdapterId, Linear>, Made> made_;
};

}  // namespace

std::unique_ptr<LinearForm> vera_linear(const FormParts& parts) {
    return std::make_unique<VeraLinear>(parts);
}

}  // namespace loratrain
