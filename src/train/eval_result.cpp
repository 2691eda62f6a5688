#include "train/eval_result.h"

#include <algorithm>
#include <cmath>
#include <sstream>

#include "base/error.h"
#include "base/text.h"

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

std::string to_text(std::span<const EvalResult> results) {
    std::string text;
    for (const EvalResult& r : results) {
        text += cat(number(r.adapter), " ", r.step, " ", format_exact(r.denominator), " ",
                    format_exact(r.loss_sum), " ", r.exact_samples, " ", r.samples, " ", r.replica,
                    " ", r.training ? 1 : 0);
        for (const double sum : r.rewards.values()) text += " " + format_exact(sum);
        text += cat(" ", r.files.size());
        for (const FileLoss& file : r.files) {
            text += " " + format_exact(file.denominator) + " " + format_exact(file.loss_sum);
        }
        text += "\n";
    }
    return text;
}

std::vector<EvalResult> eval_results_from_text(const std::string& text) {
    std::istringstream lines(text);
    std::vector<EvalResult> results;
    std::int32_t adapter = 0;
    std::string loss;  // streams do not read "nan" as a number
    for (EvalResult r; lines >> adapter >> r.step >> r.denominator >> loss >> r.exact_samples >>
                       r.samples >> r.replica >> r.training;) {
        r.adapter = AdapterId{adapter};
        r.loss_sum = std::stod(loss);
        RewardSums::Values sums{};
        std::string sum;
        for (double& value : sums) value = lines >> sum ? std::stod(sum) : 0.0;
        r.rewards = RewardSums::of(sums);
        std::size_t files = 0;
        lines >> files;
        r.files.assign(files, {});
        for (FileLoss& file : r.files) {
            lines >> file.denominator >> sum;
            file.loss_sum = std::stod(sum);
        }
        results.push_back(r);
    }
    return results;
}

}  // namespace loratrain
