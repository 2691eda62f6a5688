#include "train/eval_result.h"

#include <algorithm>

namespace loratrain {

void EvalResult::add(const EvalResult& other) {
    loss_sum += other.loss_sum;
    exact_samples += other.exact_samples;
    samples += other.samples;
    rewards.add(other.rewards);
    for (std::size_t f = 0; f < files.size() && f < other.files.size(); ++f) {
        files[f].loss_sum += other.files[f].loss_sum;
    }
}

void EvalResult::set_files(const std::vector<double>& denominators) {
    if (!files.empty()) return;
    for (const double of_file : denominators) files.push_back({of_file, 0.0});
}

double FileLoss::loss() const {
    return denominator > 0.0 ? loss_sum / denominator : std::nan("");
}

double EvalResult::loss() const {
    return loss_sum / (denominator > 0.0 ? denominator : 1.0);
}

double EvalResult::exact_match() const {
    return static_cast<double>(exact_samples) /
           static_cast<double>(std::max<std::int64_t>(1, samples));
}

}  // namespace loratrain
