#include "report/sweep_analysis.h"

#include <algorithm>
#include <charconv>
#include <functional>
#include <map>

#include "base/text.h"
#include "config/job_words.h"
#include "config/targets_text.h"

namespace loratrain {

namespace {

using ValueOf = std::function<std::string(const AdapterJob&)>;

std::vector<std::pair<std::string, ValueOf>> key_values() {
    const auto number = [](double AdapterJob::*field) {
        return [field](const AdapterJob& a) { return format_exact(a.*field); };
    };
    const auto whole = [](int AdapterJob::*field) {
        return [field](const AdapterJob& a) { return std::to_string(a.*field); };
    };
    return {
        {"r", whole(&AdapterJob::r)},
        {"learning_rate", number(&AdapterJob::learning_rate)},
        {"global_batch_size", whole(&AdapterJob::global_batch_size)},
        {"lora_alpha / r", [](const AdapterJob& a) { return format_exact(a.lora_alpha / a.r); }},
        {"lora_dropout", number(&AdapterJob::lora_dropout)},
        {"target_modules", targets_text},
        {"use_rslora", [](const AdapterJob& a) { return a.use_rslora ? "true" : "false"; }},
        {"init_from", [](const AdapterJob& a) { return a.init_from; }},
        {"ref_adapter", [](const AdapterJob& a) { return a.ref_adapter; }},
        {"lr_scheduler_type",
         [](const AdapterJob& a) { return word_of(lr_scheduler_words, a.lr_scheduler_type); }},
        {"warmup_steps", number(&AdapterJob::warmup_steps)},
        {"optim", [](const AdapterJob& a) { return word_of(optim_words, a.optim); }},
        {"weight_decay", number(&AdapterJob::weight_decay)},
        {"adam_beta1", number(&AdapterJob::adam_beta1)},
        {"adam_beta2", number(&AdapterJob::adam_beta2)},
        {"adam_epsilon", number(&AdapterJob::adam_epsilon)},
        {"max_grad_norm", number(&AdapterJob::max_grad_norm)},
        {"length",
         [](const AdapterJob& a) {
             return a.max_steps ? cat(*a.max_steps, " steps")
                                : format_exact(a.num_train_epochs) + " epochs";
         }},
        {"seed", [](const AdapterJob& a) { return std::to_string(a.seed); }},
    };
}

double leading_number(const std::string& text) {
    double value = 0.0;
    std::from_chars(text.data(), text.data() + text.size(), value);
    return value;
}

SweptKey swept_key(const std::string& name, const ValueOf& value_of, const Job& job,
                   const std::vector<const AdapterResult*>& trials) {
    SweptKey key{name, {}, {}, 0.0, std::nullopt};
    std::vector<std::string> of_trial;
    of_trial.reserve(trials.size());
    for (const AdapterResult* trial : trials) {
        of_trial.push_back(value_of(job.adapter(trial->adapter)));
    }
    key.values = of_trial;
    std::sort(key.values.begin(), key.values.end(), [](const auto& a, const auto& b) {
        return std::pair(leading_number(a), a) < std::pair(leading_number(b), b);
    });
    key.values.erase(std::unique(key.values.begin(), key.values.end()), key.values.end());
    for (const std::string& value : of_trial) {
        const auto found = std::find(key.values.begin(), key.values.end(), value);
        key.of_trial.push_back(static_cast<std::size_t>(found - key.values.begin()));
    }
    return key;
}

/// The trials with an objective; those that were ended early have seen less and do not compare.
std::vector<std::size_t> compared_trials(const SweptTrials& sweep) {
    std::vector<std::size_t> compared;
    for (std::size_t t = 0; t < sweep.trials.size(); ++t) {
        const AdapterResult& trial = *sweep.trials[t];
        const bool complete = trial.status == "DONE" || trial.status == "STOPPED EARLY";
        if (complete && trial.trial->objective) compared.push_back(t);
    }
    return compared;
}

std::optional<double> eta_squared(const SweptTrials& sweep, const SweptKey& key) {
    struct Sum {
        double values = 0.0;
        double count = 0.0;
    };
    Sum all;
    std::map<std::size_t, Sum> groups;
    const std::vector<std::size_t> trials = compared_trials(sweep);
    for (const std::size_t t : trials) {
        const double value = *sweep.trials[t]->trial->objective;
        for (Sum* sum : {&all, &groups[key.of_trial[t]]}) {
            sum->values += value;
            sum->count += 1.0;
        }
    }
    if (groups.size() < 2 || trials.size() == groups.size()) return std::nullopt;
    const double mean = all.values / all.count;
    double total = 0.0;
    double between = 0.0;
    for (const std::size_t t : trials) {
        const double off = *sweep.trials[t]->trial->objective - mean;
        total += off * off;
    }
    for (const auto& [value, sum] : groups) {
        const double off = sum.values / sum.count - mean;
        between += sum.count * off * off;
    }
    return total > 0.0 ? between / total : 0.0;
}

std::optional<double> spread_through_best(const SweptTrials& sweep, const SweptKey& key) {
    const std::vector<std::size_t> trials = compared_trials(sweep);
    if (trials.empty()) return std::nullopt;
    const std::size_t best = trials.front();
    std::vector<double> values;
    for (const std::size_t t : trials) {
        const bool alike =
            std::all_of(sweep.keys.begin(), sweep.keys.end(), [&](const SweptKey& other) {
                return other.name == key.name || other.of_trial[t] == other.of_trial[best];
            });
        if (alike) values.push_back(*sweep.trials[t]->trial->objective);
    }
    if (values.size() < 2) return std::nullopt;
    const auto [low, high] = std::minmax_element(values.begin(), values.end());
    return *high - *low;
}

}  // namespace

SweptTrials analyse_sweep(const RunRecord& run, DatasetId dataset) {
    SweptTrials sweep;
    for (const AdapterResult& result : run.results) {
        const bool here = run.job.adapter(result.adapter).dataset == dataset;
        if (here && result.trial) sweep.trials.push_back(&result);
    }
    for (const auto& [name, value_of] : key_values()) {
        SweptKey key = swept_key(name, value_of, run.job, sweep.trials);
        if (key.values.size() > 1) sweep.keys.push_back(std::move(key));
    }
    sweep.complete = compared_trials(sweep).size();
    for (SweptKey& key : sweep.keys) {
        key.eta_squared = eta_squared(sweep, key);
        key.spread_through_best = spread_through_best(sweep, key);
    }
    return sweep;
}

}  // namespace loratrain
