#include "app/bench_case.h"

#include <unistd.h>

#include <filesystem>
#include <sstream>

#include "app/cluster.h"
#include "base/rng.h"
#include "base/text.h"
#include "config/model_presets.h"
#include "io/files.h"
#include "plan/make_plan.h"

namespace loratrain {

namespace {

/// More rounds than any run of a bench takes from one job.
int planned_rounds(const CommandLine::Bench& bench) {
    return bench_warmup_rounds + 2 * bench.steps;
}

Job bench_job(const CommandLine::Bench& bench, const std::string& data, bool lora) {
    Job job;
    job.path = "bench";
    if (bench.precision == "fp32") job.model.precision = Precision::fp32;
    if (bench.precision == "bf16") job.model.precision = Precision::bf16;
    if (bench.recompute == "none") job.parallel.recompute = Recompute::none;
    if (bench.recompute == "layer") job.parallel.recompute = Recompute::layer;
    if (bench.microbatch_tokens > 0) job.parallel.microbatch_tokens = bench.microbatch_tokens;
    DatasetJob dataset;
    dataset.name = "random";
    dataset.path = data;
    dataset.max_seq_len = bench.sample_tokens;
    dataset.shuffle = false;
    job.datasets.push_back(dataset);
    for (int i = 0; i < bench.adapters; ++i) {
        AdapterJob adapter;
        adapter.name = cat("adapter-", i);
        adapter.r = bench.rank;
        adapter.global_batch_size = bench.samples;
        adapter.max_steps = planned_rounds(bench);
        adapter.lora_dropout = bench.dropout;
        if (!lora) adapter.targets.fill(false);
        job.adapters.push_back(adapter);
    }
    return job;
}

}  // namespace

ModelSpec bench_model(const CommandLine::Bench& bench) {
    if (const auto preset = model_preset(bench.model)) return *preset;
    ModelSpec model;
    model.family = "llama";
    model.vocab_size = bench.vocab;
    model.hidden_size = bench.hidden;
    model.intermediate_size = bench.intermediate;
    model.layers = bench.layers;
    model.heads = bench.heads;
    model.kv_heads = bench.heads;
    model.head_dim = bench.hidden / bench.heads;
    model.rms_norm_eps = 1e-5;
    return model;
}

RandomData::RandomData(const CommandLine::Bench& bench)
    : path_((std::filesystem::temp_directory_path() / cat("loratrain-bench-", getpid(), ".jsonl"))
                .string()) {
    const auto vocab = static_cast<std::uint64_t>(bench_model(bench).vocab_size);
    std::ostringstream text;
    for (int s = 0; s < bench.samples; ++s) {
        text << "{\"input_ids\": [";
        for (int t = 0; t < bench.sample_tokens; ++t) {
            const auto i = static_cast<std::uint64_t>(s) * bench.sample_tokens + t;
            text << (t == 0 ? "" : ", ") << uniform_int(1, i, vocab);
        }
        text << "]}\n";
    }
    write_text_atomic(path_, text.str());
}

RandomData::~RandomData() {
    std::filesystem::remove(path_);
}

BenchCase::BenchCase(const CommandLine::Bench& bench, const MpiSession& mpi, const RandomData& data,
                     bool lora, std::optional<std::int64_t> microbatch_tokens)
    : job(bench_job(bench, data.path(), lora)),
      weights(synthetic_base_weights(bench_model(bench), 1)) {
    if (microbatch_tokens) job.parallel.microbatch_tokens = microbatch_tokens;
    files.train.emplace_back(data.path(), job.datasets[0], weights->spec().vocab_size);
    files.eval.emplace_back();
    infos.push_back({files.train[0].infos(), {}});
    const BackendKind kind = bench.backend == "cuda" ? BackendKind::cuda : BackendKind::cpu;
    plan = make_plan(job, weights->spec(), infos, describe_cluster(mpi, kind));
}

}  // namespace loratrain
