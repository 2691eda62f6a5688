#include <malloc.h>

#include <cstdio>
#include <fstream>
#include <memory>
#include <optional>
#include <string>

#include "backend/cpu/cpu_backend.h"
#include "base/error.h"
#include "bench/result_origin.h"
#include "measure/makespan_check.h"
#include "plan/schedule/schedule_stream.h"
#include "support/files.h"
#include "support/small_model.h"
#include "train/stage_run.h"
#include "unit/model/small_stage.h"

// What a run without a drain keeps of a million rounds: planner, loader, runner, recorder and the
// comparison of predicted and measured time, on one stage whose backend leaves out the products.
// Writes lines of results/*.jsonl: bench_stream_memory COMMIT DEVICE DATE [ROUNDS]

namespace loratrain {
namespace {

constexpr std::int32_t first_look = 100000;
constexpr std::int32_t per_window = 64;

/// Its results do not matter.
class IdleBackend final : public CpuBackend {
  public:
    IdleBackend() : CpuBackend(1) {}
    void gemm(const Gemm&) override {}
    void attention(const Attention&) override {}
    void attention_backward(const AttentionBackward&) override {}
    void lora_shrink(const LoraShrink&) override {}
    void lora_expand(const LoraExpand&) override {}
    void lora_backward(const LoraBackward&) override {}
    void lora_grad_a(const LoraGradA&) override {}
};

class NoNeighbours final : public Communicator {
  public:
    std::unique_ptr<Transfer> send(const void*, std::size_t, int, Channel) override {
        throw Error("there is one stage");
    }
    std::unique_ptr<Transfer> receive(void*, std::size_t, int, Channel) override {
        throw Error("there is one stage");
    }
};

struct Memory {
    double allocated = 0.0;  ///< MB, by the allocator
    double resident = 0.0;   ///< MB
};

Memory memory_now() {
    constexpr double megabyte = 1e6;
    std::ifstream statm("/proc/self/statm");
    double pages = 0.0;
    statm >> pages >> pages;
    const auto info = mallinfo2();
    return {static_cast<double>(info.uordblks + info.hblkhd) / megabyte, pages * 4096.0 / megabyte};
}

class LongRun {
  public:
    explicit LongRun(StageRun::Record record)
        : case_(test::small_model(1), {test::small_adapter("a", 4), test::small_adapter("b", 8)}) {
        case_.job.path = "bench";
        for (AdapterJob& adapter : case_.job.adapters) adapter.max_steps = 1 << 30;
        case_.make_plan_again();
        const std::string path = folder_.file("samples.jsonl");
        std::ofstream out(path);
        for (int i = 0; i < 10; ++i) {
            out << R"({"input_ids": [1,2,3,4,5,6,7,8,9,10,11,12]})"
                << "\n";
        }
        out.close();
        files_.train.emplace_back(path, case_.job.datasets[0], case_.plan.model.vocab_size);
        stream_.emplace(case_.job, case_.plan, case_.infos, start());
        run_.emplace(
            StageRun::Parts{case_.job, case_.plan, *case_.weights, files_, communicator_, backend_},
            0, record);
        check_.emplace(case_.job, case_.plan);
    }

    void train_to(std::int32_t round) {
        while (stream_->round() < round) {
            const JointWindow joint = stream_->next(per_window, false);
            run_->loader().start(joint.common());
            run_->runner().run(joint.common(), run_->loader(),
                               {[&](const BatchResult&) { ++batches_; }, {}, {}});
            check_->add(joint, 1e-3);
        }
    }
    std::int64_t batches() const { return batches_; }

  private:
    Progress start() const {
        return {0, std::vector<std::int32_t>(2, 0), std::vector<bool>(2, false)};
    }

    test::TempDir folder_;
    test::SmallCase case_;
    DatasetFiles files_;
    IdleBackend backend_;
    NoNeighbours communicator_;
    std::optional<ScheduleStream> stream_;
    std::optional<StageRun> run_;
    std::optional<MakespanCheck> check_;
    std::int64_t batches_ = 0;
};

void measure(const char* what, StageRun::Record record, std::int32_t rounds,
             const std::string& origin) {
    LongRun run(record);
    run.train_to(first_look);
    const Memory before = memory_now();
    run.train_to(rounds);
    const Memory after = memory_now();
    std::printf(
        R"({"section": "Memory of a run without drains, one stage, 2 adapters", "case": "%s", )"
        R"("figures": {"rounds": "%d", "steps reported": "%lld", "allocated at 100,000 rounds": "%.2f MB", )"
        R"("more at the end": "%.3f MB", "more resident": "%.2f MB"}, %s})"
        "\n",
        what, rounds, static_cast<long long>(run.batches()), before.allocated,
        after.allocated - before.allocated, after.resident - before.resident, origin.c_str());
    std::fflush(stdout);
}

}  // namespace
}  // namespace loratrain

int main(int argc, char** argv) {
    using loratrain::StageRun;
    const std::optional<std::string> origin = loratrain::result_origin(argc, argv, " [ROUNDS]");
    if (!origin) return 2;
    const int rounds = argc == 5 ? std::stoi(argv[4]) : 1000000;
    loratrain::measure("costs recorded", StageRun::Record::costs, rounds, *origin);
    loratrain::measure("costs and spans recorded", StageRun::Record::spans, rounds, *origin);
    return 0;
}
