#include "fuzz/sample_run.h"

#include "config/job_yaml.h"
#include "support/files.h"
#include "support/small_model.h"

namespace loratrain::fuzz {

namespace {

Job read_sample(const std::string& run_dir) {
    const test::TempDir folder;
    test::put(folder.file("job.yaml"), sample_job_text(run_dir));
    return read_job(folder.file("job.yaml"), {});
}

DatasetInfo some_samples(int count) {
    DatasetInfo info;
    for (int i = 0; i < count; ++i) info.train.push_back({10 + i % 7, 5 + i % 5});
    info.eval = {info.train.begin(), info.train.begin() + 2};
    return info;
}

}  // namespace

std::string sample_job_text(const std::string& run_dir) {
    return "# a job\n"
           "model:\n  weights: base.h5\n  precision: fp32\n"
           "run: {dir: " +
           run_dir +
           ", seed: 7, backend: cpu, max_hours: 1.5, peer_timeout: 60}\n"
           "parallel:\n  pipeline_stages: auto\n  microbatch_tokens: 64\n  recompute: auto\n"
           "schedule: {policy: balanced, packing: greedy, max_adapters: auto}\n"
           "datasets:\n"
           "  math: {path: math.jsonl, max_seq_len: 40, over_length: truncate}\n"
           "  code:\n    path: 'code.h5'\n    eval_split: 0.25\n    shuffle: false\n"
           "defaults: &shared\n  r: 4\n  lora_alpha: 8\n  learning_rate: 1e-3\n"
           "  target_modules: [q_proj, \"v_proj\"]\n  global_batch_size: 4\n"
           "adapters:\n"
           "  - {name: one, dataset: math, max_steps: 9, warmup_steps: 2}\n"
           "  - name: two\n    dataset: code\n    num_train_epochs: 2.5\n    lora_dropout: 0.1\n"
           "    priority: 3\n    weight_decay: 0.01\n    lr_scheduler_type: cosine\n"
           "checkpoint: {every_steps: 5, every_minutes: 0, keep: 3}\n"
           "eval: {every_steps: 3, keep_best: true, early_stopping_patience: 2, split: 2}\n"
           "logging: {every_steps: 1, live: never, tensorboard: true, trace: false}\n";
}

std::string sample_inbox_text() {
    return "datasets: {more: {path: more.jsonl, tokenizer: bytes}}\n"
           "defaults: {r: 2}\n"
           "adapters:\n"
           "  - {name: three, dataset: more, max_steps: 4, priority: 1}\n"
           "  - {name: four, dataset: math, target_modules: all-linear}\n";
}

SampleRun::SampleRun(const std::string& run_dir)
    : job(read_sample(run_dir)), model(test::small_model(2)) {
    datasets = {some_samples(23), some_samples(17)};
    cluster.bytes_per_rank = std::uint64_t{1} << 30U;
    plan = make_plan(job, model, datasets, cluster);
    identity = {to_yaml(job), "weights", {"math", "code"}, {"", "code"}};
}

}  // namespace loratrain::fuzz
