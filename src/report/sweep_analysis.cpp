#include "report/sweep_analysis.h"

#include <algorithm>
#include <charconv>
#include <map>
#include <utility>

#include "base/text.h"
#include "config/job_keys.h"
#include "config/job_yaml.h"
#include "config/targets_text.h"
#include "config/yaml_reader.h"

namespace loratrain {

namespace {

/// How a key is called here where its value is shown in another form; "" = it is not compared.
std::string shown_name(const std::string& key) {
    if (key == "lora_alpha") return "lora_alpha / r";
    if (key == "num_train_epochs") return "length";
    for (const char* other : {"name", "dataset", "max_steps", "priority", "trial"}) {
        if (key == other) return "";
    }
    return key;
}

/// `given`: the adapter's keys that the resolved job has.
std::string shown_value(const JobKey& key, const AdapterJob& adapter, const KeyValues& given) {
    if (key.key == "lora_alpha") return format_exact(adapter.lora_alpha / adapter.r);
    if (key.key == "target_modules") return targets_text(adapter);
    if (key.key == "num_train_epochs") {
        return adapter.max_steps ? cat(*adapter.max_steps, " steps")
                                 : format_exact(adapter.num_train_epochs) + " epochs";
    }
    const auto found = given.find(key.key);
    if (found == given.end()) return key.default_value;
    if (found->second == empty_value) return "";
    const std::optional<double> number = number_in(found->second);
    return number ? format_exact(*number) : found->second;
}

/// Keys of adapters, those first that sweeps vary most.
std::vector<const JobKey*> compared_keys() {
    std::vector<const JobKey*> keys;
    for (const char* first : {"r", "learning_rate", "global_batch_size"}) {
        keys.push_back(find_job_key(adapter_section, first));
    }
    for (const JobKey& key : job_keys()) {
        const bool known = std::find(keys.begin(), keys.end(), &key) != keys.end();
        if (key.section == adapter_section && !known) keys.push_back(&key);
    }
    return keys;
}

double leading_number(const std::string& text) {
    double value = 0.0;
    std::from_chars(text.data(), text.data() + text.size(), value);
    return value;
}

SweptKey swept_key(const std::string& name, const std::vector<std::string>& of_trial) {
    SweptKey key{name, {}, {}, 0.0, std::nullopt};
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
    const std::vector<KeyValues> given = adapter_values(run.job);
    for (const JobKey* key : compared_keys()) {
        const std::string name = shown_name(key->key);
        if (name.empty()) continue;
        std::vector<std::string> of_trial;
        of_trial.reserve(sweep.trials.size());
        for (const AdapterResult* trial : sweep.trials) {
            of_trial.push_back(
                shown_value(*key, run.job.adapter(trial->adapter), given[index(trial->adapter)]));
        }
        SweptKey swept = swept_key(name, of_trial);
        if (swept.values.size() > 1) sweep.keys.push_back(std::move(swept));
    }
    sweep.complete = compared_trials(sweep).size();
    for (SweptKey& key : sweep.keys) {
        key.eta_squared = eta_squared(sweep, key);
        key.spread_through_best = spread_through_best(sweep, key);
    }
    return sweep;
}

}  // namespace loratrain
