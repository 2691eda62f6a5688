#include "app/bench_command.h"

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <limits>
#include <memory>
#include <sstream>

#include "app/bench_gemm.h"
#include "app/cluster.h"
#include "backend/make_backend.h"
#include "base/log.h"
#include "base/rng.h"
#include "comm/collective.h"
#include "config/model_presets.h"
#include "io/files.h"
#include "plan/make_plan.h"
#include "plan/plan_window.h"
#include "train/pipeline_runner.h"

namespace loratrain {

namespace {

constexpr int warmup_rounds = 1;

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

Job bench_job(const CommandLine::Bench& bench, const std::string& data, bool lora) {
    Job job;
    job.path = "bench";
    if (bench.precision == "fp32") job.model.precision = Precision::fp32;
    if (bench.precision == "bf16") job.model.precision = Precision::bf16;
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
        adapter.max_steps = bench.steps + warmup_rounds;
        adapter.lora_dropout = bench.dropout;
        if (!lora) adapter.targets.fill(false);
        job.adapters.push_back(adapter);
    }
    return job;
}

/// A file of random samples, removed with the object.
class RandomData {
  public:
    explicit RandomData(const CommandLine::Bench& bench)
        : path_(
              (std::filesystem::temp_directory_path() / cat("loratrain-bench-", getpid(), ".jsonl"))
                  .string()) {
        const std::int64_t vocab = bench_model(bench).vocab_size;
        std::ostringstream text;
        for (int s = 0; s < bench.samples; ++s) {
            text << "{\"input_ids\": [";
            for (int t = 0; t < bench.sample_tokens; ++t) {
                const auto i = static_cast<std::uint64_t>(s) * bench.sample_tokens + t;
                text << (t == 0 ? "" : ", ")
                     << uniform_int(1, i, static_cast<std::uint64_t>(vocab));
            }
            text << "]}\n";
        }
        write_text_atomic(path_, text.str());
    }
    ~RandomData() { std::filesystem::remove(path_); }
    RandomData(const RandomData&) = delete;
    RandomData& operator=(const RandomData&) = delete;
    const std::string& path() const { return path_; }

  private:
    std::string path_;
};

struct BenchResult {
    double seconds_per_step = 0.0;  ///< the fastest step
    std::uint64_t planned_bytes = 0;
    std::uint64_t allocated_bytes = 0;
    std::int64_t microbatch_tokens = 0;
};

Window next_window(const Job& job, const Plan& plan, const std::vector<DatasetInfo>& infos,
                   int from, int rounds) {
    Progress progress;
    progress.round = from;
    progress.steps.assign(job.adapters.size(), from);
    progress.stopped.assign(job.adapters.size(), false);
    return plan_window(job, plan, infos, progress, rounds);
}

BackendKind kind_of(const CommandLine::Bench& bench) {
    return bench.backend == "cuda" ? BackendKind::cuda : BackendKind::cpu;
}

BenchResult time_steps(const CommandLine::Bench& bench, const MpiSession& mpi,
                       const std::string& data, bool lora, Backend& backend) {
    const Job job = bench_job(bench, data, lora);
    const std::unique_ptr<WeightSource> weights = synthetic_base_weights(bench_model(bench), 1);
    DatasetFiles files;
    files.train.emplace_back(data, job.datasets[0], weights->spec().vocab_size);
    files.eval.emplace_back();
    const std::vector<DatasetInfo> infos{{files.train[0].infos(), {}}};
    const Plan plan = make_plan(job, weights->spec(), infos, describe_cluster(mpi, kind_of(bench)));
    const auto index = static_cast<std::size_t>(mpi.rank());
    Stage stage(job, plan, index, *weights, backend);
    const std::unique_ptr<Communicator> communicator = make_communicator(mpi, backend);
    PipelineRunner runner(job, plan, index, stage, *communicator, backend);
    Loader loader(files, std::vector<DatasetId>(job.adapters.size()), true);
    auto run = [&](int from, int rounds) {
        const Window window = next_window(job, plan, infos, from, rounds);
        loader.start(window);
        runner.run(window, loader, [](const BatchResult&) {});
        backend.synchronize();
        barrier(mpi);
    };
    run(0, warmup_rounds);
    BenchResult result;
    result.seconds_per_step = std::numeric_limits<double>::max();
    for (int step = 0; step < bench.steps; ++step) {
        const auto start = std::chrono::steady_clock::now();
        run(warmup_rounds + step, 1);
        const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
        result.seconds_per_step = std::min(result.seconds_per_step, seconds.count());
    }
    result.planned_bytes = plan.memory[index].total();
    result.allocated_bytes = backend.memory().current;
    result.microbatch_tokens = plan.microbatch_tokens;
    return result;
}

double useful_flop_per_token(const CommandLine::Bench& bench) {
    const ModelSpec model = bench_model(bench);
    const double attention =
        3.0 * 2.0 * static_cast<double>(model.layers * model.q_size()) * bench.sample_tokens;
    return 4.0 * static_cast<double>(matmul_parameters(model)) + attention;
}

void report(const CommandLine::Bench& bench, const MpiSession& mpi, const Backend& backend,
            const BenchResult& with_lora, const BenchResult& without, double gemm_rate) {
    const double tokens = static_cast<double>(bench.adapters) * bench.samples * bench.sample_tokens;
    const double flop = useful_flop_per_token(bench) * tokens;
    const double rate = flop / with_lora.seconds_per_step / 1e9 / mpi.size();
    const double overhead = with_lora.seconds_per_step / without.seconds_per_step - 1.0;
    if (bench.json) {
        log::block(cat("{\"case\": \"", bench.backend, "-step\", \"ranks\": ", mpi.size(),
                       ", \"parameters\": ", matmul_parameters(bench_model(bench)),
                       ", \"adapters\": ", bench.adapters, ", \"rank\": ", bench.rank,
                       ", \"tokens_per_step\": ", tokens,
                       ", \"seconds_per_step\": ", with_lora.seconds_per_step,
                       ", \"tokens_per_second\": ", tokens / with_lora.seconds_per_step,
                       ", \"gflops_per_rank\": ", rate, ", \"gemm_gflops_per_rank\": ", gemm_rate,
                       ", \"share_of_gemm_rate\": ", rate / gemm_rate, ", \"lora_overhead\": ",
                       overhead, ", \"planned_bytes\": ", with_lora.planned_bytes,
                       ", \"allocated_bytes\": ", with_lora.allocated_bytes, "}"));
        return;
    }
    log::block(cat(
        "backend            ", backend.description(), ", ", mpi.size(), " rank(s)\n",
        "model              ", bench_model(bench).layers, " layers, hidden ",
        bench_model(bench).hidden_size, ", ",
        format_fixed(static_cast<double>(matmul_parameters(bench_model(bench))) / 1e6, 1),
        " M weights in matrix products\n", "step               ", bench.adapters, " adapters r=",
        bench.rank, ", ", tokens, " tokens, microbatches of ", with_lora.microbatch_tokens, "\n",
        "fastest step       ", format_fixed(with_lora.seconds_per_step, 3), " s, ",
        format_fixed(tokens / with_lora.seconds_per_step, 0), " tokens/s\n", "useful rate        ",
        format_fixed(rate, 1), " GFLOP/s per rank\n", "GEMM library       ",
        format_fixed(gemm_rate, 1), " GFLOP/s per rank on the same shapes\n", "share of GEMM rate ",
        format_fixed(100.0 * rate / gemm_rate, 1), "%\n", "LoRA off           ",
        format_fixed(without.seconds_per_step, 3), " s per step; LoRA costs ",
        format_fixed(100.0 * overhead, 1), "%\n", "memory             planned ",
        human_bytes(with_lora.planned_bytes), ", allocated ",
        human_bytes(with_lora.allocated_bytes)));
}

}  // namespace

ExitCode bench_command(const CommandLine& command_line, const MpiSession& mpi) {
    const CommandLine::Bench& bench = command_line.bench;
    const bool bf16 = bench.backend == "cuda" && bench.precision != "fp32";
    const auto backend = make_backend(
        bench.backend, {threads_per_rank(mpi), mpi.local_rank(), bf16 ? DType::bf16 : DType::f32});
    const RandomData data(bench);
    const BenchResult with_lora = time_steps(bench, mpi, data.path(), true, *backend);
    const BenchResult without = time_steps(bench, mpi, data.path(), false, *backend);
    const ModelSpec model = bench_model(bench);
    const auto tokens = static_cast<double>(with_lora.microbatch_tokens);
    const double gemm_rate = 4.0 * static_cast<double>(matmul_parameters(model)) * tokens /
                             gemm_seconds(model, with_lora.microbatch_tokens, *backend) / 1e9;
    barrier(mpi);
    report(bench, mpi, *backend, with_lora, without, gemm_rate);
    return ExitCode::done;
}

}  // namespace loratrain
