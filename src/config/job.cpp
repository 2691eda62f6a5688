#include "config/job.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

namespace loratrain {

ModuleChoice AdapterJob::choice(std::int64_t layer, Linear linear) const {
    return is_outer(linear) ? modules->of_outer(linear) : modules->at(layer, linear);
}

int AdapterJob::rank(std::int64_t layer, Linear linear) const {
    if (!modules) return targets_linear(linear) ? r : 0;
    if (is_outer(linear) && !targets_linear(linear)) return 0;
    const ModuleChoice chosen = choice(layer, linear);
    return chosen.target ? chosen.r.value_or(r) : 0;
}

double AdapterJob::scaling(std::int64_t layer, Linear linear) const {
    if (is_vera()) return 1.0;
    const double alpha =
        modules ? choice(layer, linear).lora_alpha.value_or(lora_alpha) : lora_alpha;
    const int of_linear = rank(layer, linear);
    return use_rslora ? alpha / std::sqrt(static_cast<double>(of_linear)) : alpha / of_linear;
}

int target_rank(const AdapterJob& adapter, const ModelSpec& model, std::int64_t layer,
                Linear linear) {
    const LayerLinear target = target_of(model, layer, linear);
    const bool unnamed = target.is_in_experts() && adapter.targets == all_linears();
    return target.is_there && !unnamed ? adapter.rank(layer, linear) : 0;
}

bool has_tensor(const AdapterJob& adapter, const ModelSpec& model, std::int64_t layer,
                Linear linear, const FormTensor& tensor) {
    if (tensor.role == TensorRole::token_rows) return linear == Linear::embedding;
    return target_rank(adapter, model, layer, linear) > 0;
}

bool targets_experts(const AdapterJob& adapter, const ModelSpec& model) {
    if (adapter.targets == all_linears()) return false;
    for (int i = 0; i < linear_count; ++i) {
        const auto linear = static_cast<Linear>(i);
        if (is_in_experts(model, linear) && adapter.targets_linear(linear)) return true;
    }
    return false;
}

bool targets_mlps_of_experts(const AdapterJob& adapter, const ModelSpec& model) {
    if (targets_experts(adapter, model)) return true;
    for (int i = 0; i < linear_count; ++i) {
        const auto linear = static_cast<Linear>(i);
        if (!is_beside_experts(model, linear)) continue;
        for (std::int64_t layer = 0; layer < model.layers; ++layer) {
            const bool there = has_linear(model.layer(layer), linear);
            if (there && adapter.targets_linear(layer, linear)) return true;
        }
    }
    return false;
}

bool targets_experts(const Job& job, const ModelSpec& model) {
    return std::any_of(job.adapters.begin(), job.adapters.end(),
                       [&](const AdapterJob& adapter) { return targets_experts(adapter, model); });
}

bool reads_outputs(const Job& job, const ModelSpec& model) {
    return std::any_of(job.adapters.begin(), job.adapters.end(), [&](const AdapterJob& adapter) {
        constexpr std::array last = {Linear::o, Linear::down, Linear::delta_out};
        return adapter.use_dora && adapter.lora_dropout == 0.0 &&
               std::any_of(last.begin(), last.end(), [&](Linear linear) {
                   return adapter.targets_linear(linear) && !has_bias(model, linear);
               });
    });
}

std::vector<std::string> AdapterJob::directories() const {
    std::vector<std::string> found;
    if (!init_from.empty()) found.push_back(init_from);
    if (!ref_adapter.empty() && ref_adapter != init_from) found.push_back(ref_adapter);
    return found;
}

const std::string& AdapterJob::random_name() const {
    static const std::string of_trials = "trial";
    return trial ? of_trials : name;
}

namespace {

std::vector<std::string> paths_of(const std::string& path, const std::vector<DataFile>& files) {
    if (files.empty()) return {path};
    std::vector<std::string> paths;
    paths.reserve(files.size());
    for (const DataFile& file : files) paths.push_back(file.path);
    return paths;
}

}  // namespace

std::vector<std::string> DatasetJob::paths() const {
    return paths_of(path, files);
}

std::vector<std::string> DatasetJob::eval_paths() const {
    return paths_of(eval_path, eval_files);
}

AdapterForm form_of(const AdapterJob& adapter) {
    if (adapter.is_vera()) return vera_form(adapter.d_initial);
    const Initial start = adapter.init_lora_weights;
    const bool residual_start = start == Initial::pissa || start == Initial::olora;
    AdapterForm form = residual_start     ? residual_start_form(start)
                       : adapter.use_dora ? dora_form()
                                          : lora_form();
    for (FormTensor& tensor : form.tensors) {
        if (tensor.role == TensorRole::a) tensor.initial = adapter.init_lora_weights;
        if (adapter.loraplus_lr_ratio != 1.0 && tensor.role != TensorRole::a) tensor.rate_group = 1;
    }
    if (adapter.loraplus_lr_ratio != 1.0) form.rates.push_back(adapter.loraplus_lr_ratio);
    if (!adapter.trainable_token_indices.empty()) {
        form.tensors.push_back(token_rows(std::ssize(adapter.trainable_token_indices)));
    }
    return form;
}

bool Job::any_grows() const {
    return std::any_of(datasets.begin(), datasets.end(),
                       [](const DatasetJob& dataset) { return dataset.grows(); });
}

std::size_t most_admitted(const Job& job) {
    const SchedulePolicy policy = job.schedule.policy;
    if (policy == SchedulePolicy::sequential || policy == SchedulePolicy::one_f_one_b) return 1;
    constexpr auto all = std::numeric_limits<std::size_t>::max();
    return job.schedule.max_adapters ? static_cast<std::size_t>(*job.schedule.max_adapters) : all;
}

}  // namespace loratrain
