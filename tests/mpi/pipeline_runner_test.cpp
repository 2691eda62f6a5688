#include "train/pipeline_runner.h"

#include <algorithm>
#include <cmath>
#include <fstream>

#include "comm/mpi_session.h"
#include "mpi/mpi_main.h"
#include "mpi/shared_temp_dir.h"
#include "plan/schedule/schedule_stream.h"
#include "train/stage_run.h"
#include "unit/model/small_stage.h"

namespace loratrain::mpi_test {
namespace {

using test::small_adapter;
using test::small_model;
using test::SmallCase;

constexpr int announced_tag = 1;
constexpr std::int32_t windows = 12;

/// One adapter on a stage per rank, evaluated on ten samples of a microbatch each after every step.
/// All ranks know all windows; the others start one when rank 0 says so.
class StreamOfEvaluations : public ::testing::Test {
  protected:
    StreamOfEvaluations()
        : case_(small_model(4), {small_adapter("a", 4)}, session().size()),
          backend_(make_backend("cpu", {1, 0})) {
        case_.job.path = "test";
        case_.job.parallel.microbatch_tokens = 64;
        case_.job.eval.every_steps = 1;
        case_.job.adapters[0].max_steps = windows;
        case_.job.adapters[0].global_batch_size = 1;
        case_.infos[0] = {std::vector<SampleInfo>(10, {48, 47}),
                          std::vector<SampleInfo>(10, {48, 47})};
        case_.make_plan_again();
        const std::string path = folder_.path() + "/samples.jsonl";
        if (session().is_root()) write_samples(path);
        barrier(session());
        const std::int64_t words = case_.plan.model.vocab_size;
        files_.train.emplace_back(path, case_.job.datasets[0], words);
        files_.eval.push_back(std::make_unique<Dataset>(path, case_.job.datasets[0], words));
        // A message takes more than the smallest link holds.
        std::vector<RankPair> neighbours;
        for (int low = 0; low + 1 < session().size(); ++low) neighbours.emplace_back(low, low + 1);
        communicator_ = make_mpi_communicator(session(), neighbours, 0);
        run_.emplace(StageRun::Parts{case_.job, case_.plan, *case_.weights, files_, *communicator_,
                                     *backend_},
                     session().rank(), StageRun::Record::nothing);
        stream_.emplace(case_.job, case_.plan, case_.infos, Progress{0, {0}, {false}}, 1,
                        ScheduleStream::Evaluations::due);
        for (std::int32_t w = 0; w < windows; ++w) {
            windows_.push_back(stream_->next(1, w + 1 == windows));
        }
    }

    static void write_samples(const std::string& path) {
        std::ofstream out(path);
        for (int sample = 0; sample < 10; ++sample) {
            out << R"({"input_ids": [)" << sample;
            for (int i = 1; i < 48; ++i) out << ", " << (7 * i + sample) % 61;
            out << "]}\n";
        }
    }

    void announce(std::int32_t window) {
        for (int rank = 1; rank < session().size(); ++rank) {
            MPI_CHECK(MPI_Send(&window, 1, MPI_INT, rank, announced_tag, session().comm()));
        }
    }
    static void await(std::int32_t window) {
        std::int32_t announced = -1;
        MPI_CHECK(MPI_Recv(&announced, 1, MPI_INT, 0, announced_tag, session().comm(),
                           MPI_STATUS_IGNORE));
        ASSERT_EQ(announced, window);
    }

    /// Rank 0 has a window at hand while it waits in the one before, and not earlier.
    void lead() {
        std::int32_t announced = 0;
        std::int32_t trained = 0;
        std::size_t looks = 0;
        announce(announced);
        const auto look_after = [&] {
            if (++looks <= actions_of(trained) || announced > trained || announced + 1 == windows)
                return;
            announce(++announced);
            ++announced_in_waits_;
        };
        for (; trained < windows; ++trained) {
            if (announced < trained) announce(++announced);
            looks = 0;
            train(trained, look_after);
        }
    }
    std::size_t actions_of(std::int32_t window) const {
        return windows_[static_cast<std::size_t>(window)].common().actions[0].size();
    }

    void train(std::int32_t w, const std::function<void()>& between_actions) {
        const JointWindow& window = windows_[static_cast<std::size_t>(w)];
        run_->loader().start(window.common());
        run_->runner().run(window.common(), run_->loader(),
                           {{}, between_actions, [this](const EvalResult& result) {
                                evaluations_.push_back(result);
                            }});
    }

    SharedTempDir folder_;
    SmallCase case_;
    std::unique_ptr<Backend> backend_;
    DatasetFiles files_;
    std::unique_ptr<Communicator> communicator_;
    std::optional<StageRun> run_;
    std::optional<ScheduleStream> stream_;
    std::vector<JointWindow> windows_;
    std::vector<EvalResult> evaluations_;
    std::int32_t announced_in_waits_ = 0;
};

TEST_F(StreamOfEvaluations, GoesOnWhereAWindowNeedsTheNextOne) {
    if (session().is_root()) {
        lead();
        EXPECT_GT(announced_in_waits_, 0);
    } else {
        for (std::int32_t w = 0; w < windows; ++w) {
            await(w);
            train(w, {});
        }
    }
    const bool last = session().rank() + 1 == session().size();
    EXPECT_EQ(evaluations_.size(), last ? static_cast<std::size_t>(windows) : 0);
    for (const EvalResult& result : evaluations_) {
        EXPECT_EQ(result.samples, 10);
        EXPECT_TRUE(std::isfinite(result.loss_sum));
    }
}

}  // namespace
}  // namespace loratrain::mpi_test
