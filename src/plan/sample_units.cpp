#include "plan/sample_units.h"

namespace loratrain {

const char* unit_word(std::int32_t group_samples) {
    switch (data_kind(group_samples)) {
        case DataKind::pairs:
            return "pairs";
        case DataKind::labelled:
            return "examples";
        case DataKind::single:
            break;
    }
    return "samples";
}

std::int64_t units_of(std::int64_t samples, std::int32_t group_samples) {
    return samples * group_examples(group_samples) / group_samples;
}

}  // namespace loratrain
