#include "model/linear_form.h"

#include <algorithm>

namespace loratrain {

bool LinearForm::is_on(const GroupSite& site) const {
    const auto& adapters = site.rows.adapters;
    return std::any_of(adapters.begin(), adapters.end(), [&](AdapterId adapter) {
        return bank_.has(adapter, role_) && bank_.targets_group(adapter, site.layer, site.group);
    });
}

LinearForms::LinearForms(const FormParts& parts) : bank_(parts.bank) {
    for (const auto make : {separate_lora, dora_linear, vera_linear, residual_start}) {
        forms_.push_back(make(parts));
    }
}

std::span<LinearForm* const> LinearForms::on(const GroupSite& site) {
    on_.clear();
    for (const auto& form : forms_) {
        if (form->is_on(site)) on_.push_back(form.get());
    }
    return on_;
}

LoraSlot LinearForms::slot(AdapterId adapter, std::int32_t layer, Linear linear) {
    for (const auto& form : forms_) form->make_factors(adapter, layer, linear);
    return bank_.slot(adapter, layer, linear);
}

}  // namespace loratrain
