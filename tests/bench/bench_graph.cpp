#include <cuda_runtime_api.h>

#include <cstdio>
#include <stdexcept>
#include <string>

#include "bench/bench_case.h"
#include "comm/mpi_session.h"
#include "gpu_time.h"
#include "plan/memory/memory_model.h"
#include "plan/place.h"
#include "plan/schedule/plan_window.h"
#include "session/rank_backend.h"
#include "train/stage_run.h"

// What CUDA graphs would gain: forward and backward of one microbatch of a model preset, queued op
// by op as the program does, and replayed as one captured graph (which needs equal shapes every
// time). bench_graph [preset] [samples] [sample tokens]

namespace loratrain {
namespace {

void check(cudaError_t code) {
    if (code != cudaSuccess) throw std::runtime_error(cudaGetErrorString(code));
}

void run(const CommandLine::Bench& bench, const MpiSession& mpi) {
    const auto backend = make_rank_backend(mpi, BackendKind::cuda, DType::bf16);
    const RandomData data(bench);
    const BenchCase bench_case(bench, mpi, data, true);
    const auto communicator = make_communicator(mpi, neighbours_in(bench_case.plan),
                                                link_room(bench_case.plan), *backend);
    StageRun run({bench_case.job, bench_case.plan, *bench_case.inputs.weights,
                  bench_case.inputs.files, *communicator, *backend},
                 0, StageRun::Record::nothing);
    Stage& stage = run.stage();
    const Progress start{0, {0}, {false}};
    const Window window =
        plan_window(bench_case.job, bench_case.plan, bench_case.inputs.infos, start, 1);
    run.loader().start(window);
    const PackedBatch packed = run.loader().next();
    const LossTerms terms{{window.batches[0].denominator}, false};
    const MicrobatchRows rows{packed.token_ids, packed.targets, packed.positions, packed.sample_ids,
                              packed.offsets};
    const auto microbatch = [&] {
        stage.forward(0, window.microbatches[0], rows, terms);
        stage.backward(0, {}, {});
    };
    microbatch();
    const double eager = best_seconds(*backend, 5, 10, microbatch);

    auto* stream = static_cast<cudaStream_t>(backend->native_stream());
    cudaGraph_t graph = nullptr;
    cudaGraphExec_t executable = nullptr;
    check(cudaStreamBeginCapture(stream, cudaStreamCaptureModeRelaxed));
    microbatch();
    check(cudaStreamEndCapture(stream, &graph));
    std::size_t nodes = 0;
    check(cudaGraphGetNodes(graph, nullptr, &nodes));
    check(cudaGraphInstantiate(&executable, graph, 0));
    const double replayed =
        best_seconds(*backend, 5, 10, [&] { check(cudaGraphLaunch(executable, stream)); });
    std::printf(
        "%s, microbatch of %d x %d tokens: %zu kernels and copies, %.3f ms queued one by "
        "one, %.3f ms as a graph (%+.1f%%)\n",
        bench.model.c_str(), bench.samples, bench.sample_tokens, nodes, eager * 1e3, replayed * 1e3,
        (replayed / eager - 1.0) * 100.0);
    check(cudaGraphExecDestroy(executable));
    check(cudaGraphDestroy(graph));
}

}  // namespace
}  // namespace loratrain

int main(int argc, char** argv) {
    const loratrain::MpiRuntime runtime(&argc, &argv);
    loratrain::CommandLine::Bench bench;
    bench.backend = "cuda";
    bench.adapters = 1;
    bench.model = argc > 1 ? argv[1] : "tinyllama-1.1b";
    bench.samples = argc > 2 ? std::stoi(argv[2]) : 8;
    bench.sample_tokens = argc > 3 ? std::stoi(argv[3]) : 512;
    bench.microbatch_tokens = bench.samples * bench.sample_tokens;
    try {
        loratrain::run(bench, runtime.world());
    } catch (const std::exception& error) {
        std::fprintf(stderr, "%s\n", error.what());
        return 1;
    }
    return 0;
}
