#include <yaml-cpp/yaml.h>

#include <algorithm>
#include <filesystem>
#include <optional>
#include <utility>

#include "base/error.h"
#include "config/job_words.h"
#include "config/job_yaml.h"
#include "config/lr_numbers.h"

namespace loratrain {

namespace {

/// With a point in front of the exponent, so that YAML 1.1 readers see a number too.
std::string number_text(double value) {
    std::string text = format_exact(value);
    const std::size_t exponent = text.find('e');
    if (exponent != std::string::npos && text.find('.') == std::string::npos) {
        text.insert(exponent, ".0");
    }
    return text;
}

std::string absolute_path(const std::string& path) {
    return std::filesystem::absolute(path).string();
}

class Writer {
  public:
    void begin_map() { out_ << YAML::BeginMap; }
    void end_map() { out_ << YAML::EndMap; }
    void begin_list() { out_ << YAML::BeginSeq; }
    void end_list() { out_ << YAML::EndSeq; }
    void begin_section(const std::string& name) {
        out_ << YAML::Key;
        put_text(name);
        out_ << YAML::Value;
    }

    void put(const char* key, const std::string& value) {
        begin_section(key);
        put_text(value);
    }
    void put(const char* key, const char* value) = delete;
    void put(const char* key, bool value) { put(key, std::string(value ? "true" : "false")); }
    void put(const char* key, double value) { put(key, number_text(value)); }
    void put(const char* key, int value) { put(key, std::to_string(value)); }
    void put(const char* key, std::int64_t value) { put(key, std::to_string(value)); }
    void put(const char* key, std::uint64_t value) { put(key, std::to_string(value)); }
    /// [{tp: 2, pp: 1, count: 1, microbatch_tokens: auto, recompute: auto}]
    void put_deployment(const char* key, const ParallelJob& parallel) {
        if (parallel.find_deployment) return put(key, std::string(auto_word));
        if (parallel.deployment.empty()) return put(key, std::string(pipeline_word));
        out_ << YAML::Key << key << YAML::Value << YAML::Flow << YAML::BeginSeq;
        for (const ReplicaJob& replica : parallel.deployment) {
            begin_map();
            put("tp", replica.tensor);
            put("pp", replica.stages);
            put("count", replica.count);
            put("microbatch_tokens", replica.microbatch_tokens);
            put_recompute(replica);
            end_map();
        }
        end_list();
    }
    /// {layers: 8}.
    void put_number(const char* key, const char* name, int number) {
        out_ << YAML::Key << key << YAML::Value << YAML::Flow;
        begin_map();
        put(name, number);
        end_map();
    }
    /// layer, or {layers: 8}; what is found is layer.
    template <class Parallel>
    void put_recompute(const Parallel& parallel) {
        if (parallel.recompute == Recompute::layer && parallel.recomputed_layers) {
            return put_number("recompute", "layers", *parallel.recomputed_layers);
        }
        put("recompute", word_of(recompute_words, parallel.recompute));
    }
    /// none, or {layers: 8}: of a `kind` that is no word, the number.
    template <class Of, std::size_t size>
    void put_layers(const char* key, const Of& of,
                    const std::array<Word<typename Of::Kind>, size>& words, const char* name) {
        if (of.kind == Of::Kind::some) return put_number(key, name, of.layers);
        put(key, word_of(words, of.kind));
    }
    /// {min_lr_rate: 0.1}; nothing where nothing is given.
    void put_kwargs(const char* key, const LrSchedulerKwargs& kwargs) {
        if (kwargs == LrSchedulerKwargs{}) return;
        out_ << YAML::Key << key << YAML::Value << YAML::Flow;
        begin_map();
        for (const LrNumber& number : lr_numbers) {
            if (const auto& value = kwargs.*number.field) put(number.key, *value);
        }
        const LrSchedulerKwargs usual;
        if (kwargs.warmup_type != usual.warmup_type) {
            put("warmup_type", word_of(lr_ramp_words, kwargs.warmup_type));
        }
        if (kwargs.decay_type != usual.decay_type) {
            put("decay_type", word_of(lr_ramp_words, kwargs.decay_type));
        }
        end_map();
    }
    template <class T>
    void put(const char* key, const std::optional<T>& value) {
        put(key, value ? std::to_string(*value) : std::string(auto_word));
    }
    void put_path(const char* key, const std::string& path) {
        put(key, path.empty() ? path : absolute_path(path));
    }
    void put_list(const char* key, const std::vector<std::string>& words) {
        out_ << YAML::Key << key << YAML::Value << YAML::Flow << YAML::BeginSeq;
        for (const std::string& word : words) put_text(word);
        out_ << YAML::EndSeq;
    }
    /// {pattern: value}
    template <class T>
    void put_patterns(const char* key, const std::vector<std::pair<std::string, T>>& patterns) {
        if (patterns.empty()) return;
        out_ << YAML::Key << key << YAML::Value << YAML::Flow << YAML::BeginMap;
        for (const auto& [pattern, value] : patterns) put(pattern.c_str(), value);
        out_ << YAML::EndMap;
    }
    std::string text() const {
        LORATRAIN_CHECK(out_.good(), out_.GetLastError());
        return std::string(out_.c_str()) + "\n";
    }

  private:
    /// yaml-cpp writes a carriage return as it is, and reads it as the end of a line.
    void put_text(const std::string& text) {
        const bool controls =
            std::ranges::any_of(text, [](char c) { return static_cast<unsigned char>(c) < ' '; });
        if (controls) out_ << YAML::DoubleQuoted;
        out_ << text;
    }

    YAML::Emitter out_;
};

void write_model(Writer& out, const ModelJob& model) {
    out.begin_section("model");
    out.begin_map();
    if (model.synthetic.empty()) {
        out.put_path("weights", model.weights);
    } else {
        out.put("synthetic", model.synthetic);
    }
    out.put("precision", word_of(precision_words, model.precision));
    out.put_layers("residency", model.residency, residency_words, "resident_layers");
    out.put("base_model_name_or_path", model.base_model_name_or_path);
    out.end_map();
}

void write_run(Writer& out, const RunJob& run) {
    out.begin_section("run");
    out.begin_map();
    out.put_path("dir", run.dir);
    out.put("seed", run.seed);
    out.put("backend", word_of(backend_words, run.backend));
    out.put("max_hours", run.max_hours);
    out.put("peer_timeout", run.peer_timeout);
    out.end_map();
}

void write_parallel(Writer& out, const ParallelJob& parallel) {
    out.begin_section("parallel");
    out.begin_map();
    out.put("pipeline_stages", parallel.pipeline_stages);
    const bool is_open = parallel.deployment_open && parallel.deployment.empty();
    if (!is_open) out.put_deployment("deployment", parallel);
    out.put("microbatch_tokens", parallel.microbatch_tokens);
    out.put_recompute(parallel);
    out.put_layers("offload", parallel.offload, offload_words, "layers");
    out.put("dispatch", word_of(dispatch_words, parallel.dispatch));
    if (!parallel.assignment_open) {
        out.put("assignment", word_of(assignment_words, parallel.assignment));
    }
    out.put("redeploy", word_of(redeploy_words, parallel.redeploy));
    out.end_map();
}

void write_cluster(Writer& out, const ClusterJob& cluster) {
    const LinkJob& link = cluster.between_hosts;
    out.begin_section("cluster");
    out.begin_map();
    out.begin_section("between_hosts");
    out.begin_map();
    if (link.gigabytes_per_second) out.put("gigabytes_per_second", *link.gigabytes_per_second);
    if (link.microseconds) out.put("microseconds", *link.microseconds);
    out.end_map();
    out.end_map();
}

void write_schedule(Writer& out, const ScheduleJob& schedule) {
    out.begin_section("schedule");
    out.begin_map();
    out.put("policy", word_of(schedule_policy_words, schedule.policy));
    out.put("packing", word_of(packing_words, schedule.packing));
    out.put("max_adapters", schedule.max_adapters);
    out.put("solver_seconds", schedule.solver_seconds);
    out.put("costs", word_of(cost_source_words, schedule.costs));
    out.end_map();
}

void put_split(Writer& out, const char* key, const EvalSplit& split) {
    if (split.samples > 0) {
        out.put(key, split.samples);
    } else if (split.any()) {
        out.put(key, split.fraction);
    }
}

void put_files(Writer& out, const char* key, const std::vector<DataFile>& files) {
    out.begin_section(key);
    out.begin_list();
    for (const DataFile& file : files) {
        out.begin_map();
        out.put_path("path", file.path);
        out.put("name", file.name);
        out.put("weight", file.weight);
        out.end_map();
    }
    out.end_list();
}

void write_dataset(Writer& out, const DatasetJob& dataset) {
    out.begin_section(dataset.name);
    out.begin_map();
    if (dataset.files.empty()) {
        out.put_path("path", dataset.path);
    } else {
        put_files(out, "files", dataset.files);
    }
    if (dataset.eval_files.empty()) {
        out.put_path("eval_path", dataset.eval_path);
    } else {
        std::vector<std::string> paths;
        for (const std::string& path : dataset.eval_paths()) paths.push_back(absolute_path(path));
        out.put_list("eval_path", paths);
    }
    out.put("tokenizer", word_of(tokenizer_words, dataset.tokenizer));
    out.put("max_seq_len", dataset.max_seq_len);
    out.put("over_length", word_of(over_length_words, dataset.over_length));
    out.put("shuffle", dataset.shuffle);
    if (dataset.kl_batch_size != usual_kl_batch_size) {
        out.put("kl_batch_size", dataset.kl_batch_size);
    }
    put_split(out, "eval_split", dataset.eval_split);
    out.end_map();
}

void write_targets(Writer& out, const AdapterJob& adapter) {
    const ModuleKeys keys = adapter.modules ? adapter.modules->keys() : ModuleKeys{};
    std::vector<std::string> words = keys.target_modules;
    for (int i = 0; i < linear_count && keys.target_modules.empty(); ++i) {
        const auto linear = static_cast<Linear>(i);
        if (adapter.targets_linear(linear)) words.emplace_back(module_name(linear));
    }
    const bool all = words.size() == linear_count;
    for (const Linear linear : outer_linears) {
        if (!adapter.targets_linear(linear) || !keys.target_modules.empty()) continue;
        words.emplace_back(module_name(linear));
    }
    if (!keys.target_regex.empty()) {
        out.put("target_modules", keys.target_regex);
    } else if (all && !adapter.targets_outer() && keys.target_modules.empty()) {
        out.put("target_modules", std::string(all_linear_word));
    } else {
        out.put_list("target_modules", words);
    }
    if (!keys.exclude_regex.empty()) out.put("exclude_modules", keys.exclude_regex);
    if (!keys.exclude_modules.empty()) out.put_list("exclude_modules", keys.exclude_modules);
    if (!keys.layers_to_transform.empty()) {
        std::vector<std::string> layers;
        for (const std::int64_t layer : keys.layers_to_transform) {
            layers.push_back(std::to_string(layer));
        }
        out.put_list("layers_to_transform", layers);
    }
    if (!keys.layers_pattern.empty()) out.put_list("layers_pattern", keys.layers_pattern);
    out.put_patterns("rank_pattern", keys.rank_pattern);
    out.put_patterns("alpha_pattern", keys.alpha_pattern);
}

void write_token_loss(Writer& out, const LossJob& loss) {
    if (loss.is_dft()) out.put("loss_type", word_of(loss_type_words, loss.type));
    if (loss.label_smoothing_factor != 0.0) {
        out.put("label_smoothing_factor", loss.label_smoothing_factor);
    }
    if (loss.z_loss != 0.0) out.put("z_loss", loss.z_loss);
}

void write_loss(Writer& out, const LossJob& loss) {
    if (loss.loss == Loss::sft) return write_token_loss(out, loss);
    out.put("loss", word_of(loss_words, loss.loss));
    if (loss.is_contrastive()) {
        out.put("temperature", loss.temperature);
        out.put("lambda", loss.lambda);
        return;
    }
    if (loss.has_types()) out.put("loss_type", word_of(loss_type_words, loss.type));
    out.put("beta", loss.beta);
    if (loss.has_label_smoothing()) out.put("label_smoothing", loss.label_smoothing);
    if (loss.loss == Loss::simpo) out.put("simpo_gamma", loss.simpo_gamma);
    if (loss.has_cpo_alpha()) out.put("cpo_alpha", loss.nll_weight());
    if (loss.loss == Loss::kto) {
        out.put("desirable_weight", loss.desirable_weight);
        out.put("undesirable_weight", loss.undesirable_weight);
    }
}

void write_adapter(Writer& out, const Job& job, const AdapterJob& adapter) {
    out.begin_map();
    out.put("name", adapter.name);
    out.put("dataset", job.dataset(adapter.dataset).name);
    out.put("r", adapter.r);
    if (adapter.is_vera()) {
        out.put("peft_type", word_of(peft_type_words, adapter.peft_type));
        out.put("d_initial", adapter.d_initial);
        out.put("projection_prng_key", adapter.projection_prng_key);
        out.put("save_projection", adapter.save_projection);
    } else {
        out.put("lora_alpha", adapter.lora_alpha);
    }
    out.put("lora_dropout", adapter.lora_dropout);
    write_targets(out, adapter);
    out.put("use_rslora", adapter.use_rslora);
    if (adapter.use_dora) out.put("use_dora", adapter.use_dora);
    if (adapter.init_lora_weights != Initial::uniform) {
        out.put("init_lora_weights", adapter.pissa_niter
                                         ? cat(pissa_niter_word, *adapter.pissa_niter)
                                         : word_of(initial_words, adapter.init_lora_weights));
    }
    if (adapter.loraplus_lr_ratio != 1.0) out.put("loraplus_lr_ratio", adapter.loraplus_lr_ratio);
    out.put_path("init_from", adapter.init_from);
    write_loss(out, adapter.loss);
    if (!adapter.ref_adapter.empty()) out.put_path("ref_adapter", adapter.ref_adapter);
    if (adapter.neftune_noise_alpha != 0.0) {
        out.put("neftune_noise_alpha", adapter.neftune_noise_alpha);
    }
    out.put("learning_rate", adapter.learning_rate);
    out.put("lr_scheduler_type", word_of(lr_scheduler_words, adapter.lr_scheduler_type));
    out.put_kwargs("lr_scheduler_kwargs", adapter.lr_scheduler_kwargs);
    out.put("warmup_steps", adapter.warmup_steps);
    if (adapter.optim != Optim::adamw_torch) {
        out.put("optim", word_of(optim_words, adapter.optim));
    }
    out.put("weight_decay", adapter.weight_decay);
    out.put("adam_beta1", adapter.adam_beta1);
    out.put("adam_beta2", adapter.adam_beta2);
    out.put("adam_epsilon", adapter.adam_epsilon);
    out.put("max_grad_norm", adapter.max_grad_norm);
    out.put("global_batch_size", adapter.global_batch_size);
    if (adapter.max_steps) {
        out.put("max_steps", *adapter.max_steps);
    } else {
        out.put("num_train_epochs", adapter.num_train_epochs);
    }
    out.put("seed", adapter.seed);
    out.put("priority", adapter.priority);
    if (adapter.trial) out.put("trial", adapter.trial);
    out.end_map();
}

void write_checkpoint(Writer& out, const CheckpointJob& checkpoint) {
    out.begin_section("checkpoint");
    out.begin_map();
    out.put("every_steps", checkpoint.every_steps);
    out.put("every_minutes", checkpoint.every_minutes);
    out.put("keep", checkpoint.keep);
    out.end_map();
}

void write_eval(Writer& out, const EvalJob& eval) {
    out.begin_section("eval");
    out.begin_map();
    out.put("every_steps", eval.every_steps);
    out.put("keep_best", eval.keep_best);
    out.put("early_stopping_patience", eval.early_stopping_patience);
    out.put("early_stopping_threshold", eval.early_stopping_threshold);
    put_split(out, "split", eval.split);
    if (eval.generate.wanted()) {
        out.begin_section("generate");
        out.begin_map();
        out.put("samples", eval.generate.samples);
        out.put("max_new_tokens", eval.generate.max_new_tokens);
        std::vector<std::string> tokens;
        for (const std::int32_t token : eval.generate.stop_tokens) {
            tokens.push_back(std::to_string(token));
        }
        if (!tokens.empty()) out.put_list("stop_tokens", tokens);
        out.end_map();
    }
    out.end_map();
}

void write_export(Writer& out, const ExportJob& exports) {
    out.begin_section("export");
    out.begin_map();
    out.put("scaling", word_of(export_scaling_words, exports.scaling));
    out.put("dtype", word_of(export_dtype_words, exports.dtype));
    out.put("tokenizer", exports.tokenizer);
    out.end_map();
}

void write_logging(Writer& out, const LoggingJob& logging) {
    out.begin_section("logging");
    out.begin_map();
    out.put("every_steps", logging.every_steps);
    out.put("live", word_of(live_table_words, logging.live));
    out.put("tensorboard", logging.tensorboard);
    out.put("trace", logging.trace);
    out.end_map();
}

/// Without the space: its trials are among the adapters.
void write_sweep(Writer& out, const SweepJob& sweep) {
    out.begin_section("sweep");
    out.begin_map();
    out.put("objective", word_of(sweep_objective_words, sweep.objective));
    out.put("top_k", sweep.top_k);
    out.put("export", word_of(sweep_export_words, sweep.exports));
    out.put("reference", sweep.reference);
    out.put("scheduler", word_of(trial_scheduler_words, sweep.scheduler));
    out.put("rungs", sweep.rungs);
    out.put("reduction_factor", sweep.reduction_factor);
    out.put("rung_eval_samples", sweep.rung_eval_samples);
    out.put("speculate", word_of(speculation_words, sweep.speculate));
    out.put("budget_hours", sweep.budget_hours);
    out.put("wait_minutes", sweep.wait_minutes);
    out.end_map();
}

}  // namespace

std::string to_yaml(const Job& job) {
    Writer out;
    out.begin_map();
    write_model(out, job.model);
    write_run(out, job.run);
    write_parallel(out, job.parallel);
    if (job.cluster.any()) write_cluster(out, job.cluster);
    write_schedule(out, job.schedule);
    out.begin_section("datasets");
    out.begin_map();
    for (const DatasetJob& dataset : job.datasets) write_dataset(out, dataset);
    out.end_map();
    out.begin_section("adapters");
    out.begin_list();
    for (const AdapterJob& adapter : job.adapters) write_adapter(out, job, adapter);
    out.end_list();
    write_checkpoint(out, job.checkpoint);
    write_eval(out, job.eval);
    write_export(out, job.exports);
    write_logging(out, job.logging);
    if (job.sweep) write_sweep(out, *job.sweep);
    out.end_map();
    return out.text();
}

}  // namespace loratrain
