#pragma once

#include "config/foreign_keys.h"
#include "config/job_keys.h"

namespace loratrain {

/// Table of keys that other programs have and jobs do not (ForeignKey). Only data: foreign_keys.cpp
/// searches it.

inline constexpr const char* foreign_ranks =
    "mpirun -np N sets how many devices there are, parallel.deployment how they share the model";
inline constexpr const char* foreign_at_once =
    "parallel.microbatch_tokens: auto chooses how many tokens are computed at once";
inline constexpr const char* foreign_precisions = "model.precision: bf16, fp32, fp8 or auto";
inline constexpr const char* foreign_with_min_lr = "with lr_scheduler_type: cosine_with_min_lr";
inline constexpr const char* foreign_evaluated =
    "datasets with an eval_path or eval_split are evaluated before the first and after the last "
    "step, and every eval.every_steps";
inline constexpr const char* foreign_by_eval_loss =
    "eval.keep_best and early stopping go by the eval loss";
inline constexpr const char* foreign_quantised =
    "loratrain import-hf --quantize nf4|int8|fp8 makes a quantised base";
inline constexpr const char* foreign_cut_over_ranks =
    "parallel.deployment cuts the model over ranks";
inline constexpr const char* foreign_saved =
    "checkpoint.every_steps and checkpoint.every_minutes say when";

inline constexpr ForeignKey foreign_keys[] = {
    // Keys of jobs under other names.
    {"activation_checkpointing use_gradient_checkpointing", "false null",
     "for true write recompute: layer", "recompute", "parallel"},
    {"adapter_name_or_path lora_model_dir", "", "", "init_from", adapter_section},
    {"alpha", "", "", "lora_alpha", adapter_section},
    {"base_model model_id model_name model_name_or_path pretrained_model_name_or_path", "",
     "an HDF5 file that loratrain import-hf makes of a Hugging Face folder", "weights", "model"},
    {"batch_size micro_batch_size train_batch_size", "",
     "samples of one optimizer step, whatever the ranks", "global_batch_size", adapter_section},
    {"beta1", "", "", "adam_beta1", adapter_section},
    {"beta2", "", "", "adam_beta2", adapter_section},
    {"clip_high_threshold", "", "", "clip_high", adapter_section},
    {"clip_low_threshold", "", "", "clip_low", adapter_section},
    {"concurrency_num", "", "", "max_adapters", "schedule"},
    {"contrastive_loss_ratio", "", "", "lambda", adapter_section},
    {"cosine_min_lr_ratio", "0 null", foreign_with_min_lr, "min_lr_rate", "lr_scheduler_kwargs"},
    {"cutoff_len max_length max_seq_length model_max_length sequence_len", "", "", "max_seq_len",
     dataset_section},
    {"data_files data_path train_file", "", "", "path", dataset_section},
    {"disable_tqdm", "true false null", "", "live", "logging"},
    {"dropout vera_dropout", "", "", "lora_dropout", adapter_section},
    {"dtype torch_dtype", "auto", "", "precision", "model"},
    {"early_stopping_steps", "", "counted in evaluations", "early_stopping_patience", "eval"},
    {"epochs num_epochs", "", "", "num_train_epochs", adapter_section},
    {"eps", "", "", "adam_epsilon", adapter_section},
    {"epsilon", "", "clip_low: 1 - epsilon, clip_high: 1 + epsilon", "clip_low", adapter_section},
    {"epsilon_high", "", "clip_high: 1 + epsilon_high, for cispo epsilon_high", "clip_high",
     adapter_section},
    {"eval_file validation_file", "", "", "eval_path", dataset_section},
    {"eval_steps", "", "", "every_steps", "eval"},
    {"excess_length_strategy", "", "for raise write error", "over_length", dataset_section},
    {"gradient_accumulation_steps", "1 null",
     "samples of one optimizer step, whatever the ranks; microbatches are cut by "
     "parallel.microbatch_tokens",
     "global_batch_size", adapter_section},
    {"gradient_checkpointing", "false null",
     "for true write recompute: layer; auto does it where memory is short", "recompute",
     "parallel"},
    {"gradient_clipping max_norm", "", "", "max_grad_norm", adapter_section},
    {"interleave_probs", "null", "give each file a weight", "files", dataset_section},
    {"load_best_model_at_end", "false null", "", "keep_best", "eval"},
    {"logging_steps", "", "", "every_steps", "logging"},
    {"lora_r lora_rank rank", "", "", "r", adapter_section},
    {"lora_target lora_target_modules", "", "", "target_modules", adapter_section},
    {"lr", "", "", "learning_rate", adapter_section},
    {"lr_min", "0 null", foreign_with_min_lr, "min_lr", "lr_scheduler_kwargs"},
    {"lr_scheduler", "", "", "lr_scheduler_type", adapter_section},
    {"mix_strategy", "concat null", "a file's weight says how often an epoch has it", "files",
     dataset_section},
    {"optimizer", "adamw adamw_torch adamw_torch_fused adamw_hf adam null",
     "adamw_torch or adamw_8bit", "optim", adapter_section},
    {"output_dir", "", "", "dir", "run"},
    {"peft_init_lora_weights", "", "", "init_lora_weights", adapter_section},
    {"peft_layers_to_transform", "", "", "layers_to_transform", adapter_section},
    {"peft_use_dora", "false null", "", "use_dora", adapter_section},
    {"peft_use_rslora", "", "", "use_rslora", adapter_section},
    {"per_device_train_batch_size", "",
     "samples of one optimizer step, whatever the ranks; for kto also datasets.NAME.kl_batch_size",
     "global_batch_size", adapter_section},
    {"pref_beta", "", "", "beta", adapter_section},
    {"pref_loss", "", "orpo and simpo are values of loss", "loss_type", adapter_section},
    {"random_state", "", "", "seed", adapter_section},
    {"ref_adapter_name", "", "a PEFT directory, or init_from", "ref_adapter", adapter_section},
    {"ref_model_adapters", "", "", "ref_adapter", adapter_section},
    {"report_to", "none null", "for report_to: tensorboard write logging: {tensorboard: true}",
     "tensorboard", "logging"},
    {"rl", "null", "for ipo write loss: dpo, loss_type: ipo", "loss", adapter_section},
    {"save_steps", "", "", "every_steps", "checkpoint"},
    {"save_total_limit", "", "", "keep", "checkpoint"},
    {"stage", "sft null",
     "for pt prepare data with scripts/prepare_data.py --train-on all; for ppo write loss: ppo and "
     "give rollouts; rm is not supported",
     "loss", adapter_section},
    {"steps", "", "", "max_steps", adapter_section},
    {"tensor_parallel_size", "null false", "mpirun starts one rank for each part", "tp",
     "parallel.deployment[0]"},
    {"test_size", "", "or eval.split for all datasets", "eval_split", dataset_section},
    {"use_tensorboard", "false null", "", "tensorboard", "logging"},
    {"val_set_size val_size", "", "or eval.split for all datasets", "eval_split", dataset_section},
    {"val_set_size val_size", "", "of every dataset that has none of its own", "split", "eval"},

    // What has no key here.
    {"accelerator_config ddp_backend ddp_find_unused_parameters deepspeed device_map fsdp "
     "fsdp_config fsdp_version num_gpus parallelism_config",
     "null false", foreign_ranks},
    {"adapter", "lora null",
     "adapters are LoRA (peft_type: vera for VeRA); a quantised base, as of qlora, is made by "
     "loratrain import-hf --quantize nf4|int8|fp8"},
    {"additional_target lora_modules_to_save modules_to_save", "null",
     "whole modules stay frozen, embeddings and norms too: use LoRA, target_modules: all-linear, "
     "or a list with lm_head or embed_tokens; for new tokens trainable_token_indices: [32000, "
     "32001]"},
    {"alora_invocation_tokens", "false null",
     "activated LoRA is not supported: an adapter works on every token"},
    {"arrow_config", "false null", "Arrow is not supported: adapters are not routed to each other"},
    {"assistant_only_loss completion_only_loss dataset_prepared_path ds_type overwrite_cache "
     "pad_token remove_unused_columns roles_to_train special_tokens tokenizer_config "
     "tokenizer_type train_on_eos",
     "null", "scripts/prepare_data.py writes tokens and labels before the run"},
    {"attn_implementation flash_attention flash_attn low_cpu_mem_usage sdp_attention torch_compile "
     "use_cache use_flash_attention_2 use_liger_kernel xformers_attention",
     "*", "kernels are chosen automatically"},
    {"auto_find_batch_size", "true false null", foreign_at_once},
    {"auto_mapping", "null", "leave it out: the model's config.json says what it is"},
    {"auto_resume_from_checkpoints", "true null", "the same command continues automatically"},
    {"average_tokens_across_devices", "true null",
     "the loss is over the target tokens of the whole step"},
    {"bf16", "auto", foreign_precisions},
    {"bias", "none", "biases stay frozen"},
    {"chat_template template", "null",
     "scripts/prepare_data.py writes tokens and labels before the run: --chat-template FILE"},
    {"contrastive_pooling_method", "last null",
     "cit compares the hidden states at the last label of each sample"},
    {"corda_config", "false null",
     "CorDA is not supported: init_lora_weights takes true, gaussian, pissa, pissa_niter_N and "
     "olora"},
    {"data_seed", "null", "the seed of an adapter orders its samples too"},
    {"dataloader_drop_last", "false null", "the last batch of an epoch has what is left"},
    {"dataloader_num_workers dataloader_persistent_workers dataloader_pin_memory "
     "dataloader_prefetch_factor",
     "*", "samples are read ahead automatically"},
    {"dataset_num_proc preprocessing_num_workers", "null",
     "scripts/prepare_data.py writes tokens and labels before the run: --workers N"},
    {"dataset_text_field", "null",
     "scripts/prepare_data.py writes tokens and labels before the run: --text-field KEY"},
    {"ddp_timeout", "", "run.peer_timeout: seconds without a heartbeat that end the job"},
    {"do_eval eval_on_start", "true null", foreign_evaluated},
    {"do_train", "true null", "a job trains; --dry-run only plans"},
    {"enable_jit_checkpoint", "true null", "a stop signal saves automatically"},
    {"ensure_weight_tying", "false null",
     "LoRA on embed_tokens and on lm_head are not tied to each other"},
    {"eos_token", "null",
     "scripts/prepare_data.py writes tokens and labels before the run: --eos-token TEXT"},
    {"eva_config", "false null",
     "EVA is not supported: init_lora_weights takes true, gaussian, pissa, pissa_niter_N and "
     "olora"},
    {"eval_batch_size per_device_eval_batch_size", "auto null", foreign_at_once},
    {"eval_sample_packing group_by_length neat_packing packing pad_to_sequence_len padding_free "
     "sample_packing",
     "true false null",
     "samples are always packed and never see each other; schedule.packing says how"},
    {"eval_strategy evaluation_strategy", "steps no null", foreign_evaluated},
    {"evals_per_epoch", "null", foreign_evaluated},
    {"fan_in_fan_out lora_fan_in_fan_out", "false null",
     "models with transposed weights are not supported"},
    {"finetuning_type", "lora null",
     "adapters are LoRA (peft_type: vera for VeRA); the base stays frozen"},
    {"fp16", "false null", foreign_precisions},
    {"full_determinism", "true false null", "results always repeat to the bit"},
    {"gradient_checkpointing_kwargs", "null",
     "parallel.recompute: layer keeps the layers' inputs only"},
    {"greater_is_better", "false null", foreign_by_eval_loss},
    {"hub_model_id hub_strategy hub_token push_to_hub", "false null",
     "nothing is sent; adapters lie in <run.dir>/adapters"},
    {"inference_mode", "false null", "adapters are trained"},
    {"layer_replication", "false null",
     "layers are not replicated: the base keeps the layers of its file"},
    {"load_in_4bit load_in_8bit", "false null", foreign_quantised},
    {"local_rank", "-1 null", foreign_ranks},
    {"loftq_config", "false null",
     "LoftQ is not supported: init_lora_weights takes true, gaussian, pissa, pissa_niter_N and "
     "olora; loratrain import-hf --quantize makes a quantised base"},
    {"logging_dir", "null",
     "event files go to <run.dir>/tensorboard, with logging: {tensorboard: true}"},
    {"logging_first_step", "true false null", "metrics.jsonl has every step, the first one too"},
    {"logging_strategy", "steps null", "logging.every_steps says when"},
    {"lora_bias", "false null",
     "LoRA layers have no biases: vLLM, SGLang and llama.cpp cannot load them"},
    {"lora_ga_config", "false null",
     "LoRA-GA is not supported: init_lora_weights takes true, gaussian, pissa, pissa_niter_N and "
     "olora"},
    {"lora_target_linear", "true", "target_modules: all-linear, the default"},
    {"loraplus_lr_embedding", "null 1e-6 1.0e-6 1e-06 1.0e-06 0.000001",
     "loraplus_lr_ratio does not go with embed_tokens"},
    {"mask_history", "null",
     "scripts/prepare_data.py writes tokens and labels before the run: --train-on last-turn"},
    {"max_samples", "null", "shorten the file, as in head -n 1000 all.jsonl > some.jsonl"},
    {"megatron_config", "false null", foreign_cut_over_ranks},
    {"megatron_core", "megatron.core false null", foreign_cut_over_ranks},
    {"metric_for_best_model", "eval_loss loss null", foreign_by_eval_loss},
    {"mlflow_tracking_uri use_wandb wandb_entity wandb_log_model wandb_name wandb_project "
     "wandb_run_id wandb_watch",
     "null",
     "nothing is sent; scripts/export_metrics.py --wandb or --mlflow writes offline files of "
     "metrics.jsonl"},
    {"no_cuda use_cpu", "false null", "run.backend: cpu, cuda or auto"},
    {"optim_args", "null",
     "the optimizer is AdamW: adam_beta1, adam_beta2, adam_epsilon, weight_decay"},
    {"overwrite_output_dir", "false null", "--restart never starts anew"},
    {"plot_loss", "true false null", "loratrain report RUN_DIR draws the curves"},
    {"pref_ftx", "0 0.0 null", "dpo adds no cross-entropy; loss: cpo does, weighed by cpo_alpha"},
    {"quantization_bit quantization_config", "null", foreign_quantised},
    {"ref_model", "null", "dpo and kto compare with the base, or with an adapter as ref_adapter"},
    {"resize_token_embeddings_to_32x", "false null", "the vocabulary stays as it is"},
    {"resume_from_checkpoint", "null",
     "the same command continues automatically; --restart PATH takes another checkpoint"},
    {"revision", "null main", "weights are those of the file"},
    {"run_name", "null", "run.dir names the run"},
    {"runtime_config", "false null",
     "the ranks that train an adapter initialise it; no other GPU is needed"},
    {"save_only_model", "false null", "checkpoints hold what continuing needs"},
    {"save_safetensors", "true null", "adapters are written as safetensors"},
    {"save_strategy", "steps null", foreign_saved},
    {"saves_per_epoch", "null", foreign_saved},
    {"shuffle_merged_datasets", "true null",
     "a dataset of several files mixes them; datasets.NAME.shuffle is true by default"},
    {"strict", "*", "unknown keys are always refused"},
    {"target_parameters", "false null",
     "LoRA in experts is target_modules: [gate_proj, up_proj, down_proj]"},
    {"task_type", "CAUSAL_LM null", "models are causal language models"},
    {"tf32", "false null", "fp32 is computed as fp32"},
    {"train_on_inputs train_on_prompt", "null",
     "scripts/prepare_data.py writes tokens and labels before the run: --train-on all"},
    {"trust_remote_code", "false null", "a model's own code is never run"},
    {"use_bdlora", "false null",
     "BD-LoRA is not supported: factors are whole, whatever parallel.deployment says"},
    {"use_qalora", "false null",
     "QALoRA is not supported: loratrain import-hf --quantize makes a quantised base, adapters "
     "stay fp32"},
};

}  // namespace loratrain
