#include "plan/text/plan_text.h"

#include "config/text_archive.h"
#include "plan/text/plan_fields.h"

namespace loratrain {

std::string to_text(const Plan& plan) {
    return yaml_text(text_tree(plan));
}

Plan plan_from_text(const std::string& text, const std::string& where) {
    return read_text_as<Plan>(text, where, {"a plan"});
}

}  // namespace loratrain
