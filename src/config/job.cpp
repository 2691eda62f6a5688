#include "config/job.h"

#include <cmath>

namespace loratrain {

double AdapterJob::scaling() const {
    return use_rslora ? lora_alpha / std::sqrt(static_cast<double>(r)) : lora_alpha / r;
}

}  // namespace loratrain
