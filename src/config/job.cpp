#include "config/job.h"

#include <cmath>

namespace loratrain {

double AdapterJob::scaling() const {
    return use_rslora ? lora_alpha / std::sqrt(static_cast<double>(r)) : lora_alpha / r;
}

const std::string& AdapterJob::random_name() const {
    static const std::string of_trials = "trial";
    return trial ? of_trials : name;
}

}  // namespace loratrain
