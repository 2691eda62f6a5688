#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <string>
#include <vector>

#include "base/text.h"
#include "bench/result_origin.h"
#include "bench/summary_job.h"
#include "config/model_presets.h"
#include "plan/deploy/make_plan.h"
#include "plan/predict/simulate.h"
#include "plan/schedule/schedule_stream.h"

// Idle time of whole runs by simulation, from the first evaluation to the last, all that fills and
// drains included: llama-3.1-8b on four H200s, eight adapters of unlike length that are evaluated
// every 20 steps and at their end. Writes the lines of results/*.jsonl (write_results.py):
// bench_drains COMMIT DEVICE DATE

namespace loratrain {
namespace {

constexpr std::int32_t stages = 4;
constexpr std::int32_t evaluated_every = 20;
constexpr std::int32_t planned_rounds = 20;  // of a window
constexpr std::size_t evaluated_samples = 64;
constexpr std::int32_t samples = 4096;

struct Work {
    const Lengths* dataset;  ///< null = mixed
    std::int32_t batch;
    std::int32_t first_steps;  ///< of the shortest adapter
    std::int32_t more_steps;   ///< of each beside the one before
};

enum class Ends { drain, stream };

Job job_of(const Work& work) {
    Job job = summary_job(8, work.batch);
    job.eval.every_steps = evaluated_every;
    for (int a = 0; a < 8; ++a) {
        job.adapters[static_cast<std::size_t>(a)].max_steps =
            work.first_steps + a * work.more_steps;
    }
    return job;
}

/// Those of four adapters, to each two: the second has them in reverse.
std::vector<DatasetInfo> data_of(const Lengths* dataset) {
    std::vector<DatasetInfo> infos = summary_data(dataset, samples);
    infos.resize(8);
    for (std::size_t a = 0; a < 8; ++a) {
        DatasetInfo& info = infos[a];
        if (a >= 4) info.train.assign(infos[a - 4].train.rbegin(), infos[a - 4].train.rend());
        const auto first = info.train.end() - evaluated_samples;
        info.eval.assign(first, info.train.end());
    }
    return infos;
}

class Run {
  public:
    Run(const Job& job, const Plan& plan, const std::vector<DatasetInfo>& data)
        : job_(job), plan_(plan), data_(data), simulator_(job, only_replica(plan), plan.costs) {
        progress_.steps.assign(job.adapters.size(), 0);
        progress_.stopped.assign(job.adapters.size(), false);
    }

    /// As the trainer goes on (train/worker_loop.h): `ends` says what evaluations and ends do.
    const Timeline& play(Ends ends, std::int32_t checkpoint_every) {
        evaluate(running());
        while (!running().empty()) {
            const std::vector<AdapterId> trained = running();
            stream(ends, last_round(ends, checkpoint_every));
            if (ends == Ends::stream) continue;
            const bool all = progress_.round % evaluated_every == 0;
            std::vector<AdapterId> due;
            for (const AdapterId a : trained) {
                if (all || left(a) == 0) due.push_back(a);
            }
            evaluate(due);
        }
        return simulator_.timeline();
    }

  private:
    std::int32_t left(AdapterId a) const {
        return plan_.adapters[index(a)].total_steps - progress_.steps[index(a)];
    }
    std::vector<AdapterId> running() const {
        std::vector<AdapterId> adapters;
        for (std::size_t a = 0; a < job_.adapters.size(); ++a) {
            if (left(static_cast<AdapterId>(a)) > 0) adapters.push_back(static_cast<AdapterId>(a));
        }
        return adapters;
    }

    std::int32_t last_round(Ends ends, std::int32_t checkpoint_every) const {
        std::vector<std::int32_t> rounds;
        for (const AdapterId a : running()) rounds.push_back(left(a));
        const auto [least, most] = std::minmax_element(rounds.begin(), rounds.end());
        std::int32_t more = ends == Ends::drain ? *least : *most;
        const std::int32_t round = progress_.round;
        if (ends == Ends::drain) more = std::min(more, evaluated_every - round % evaluated_every);
        if (checkpoint_every > 0)
            more = std::min(more, checkpoint_every - round % checkpoint_every);
        return round + more;
    }

    void evaluate(const std::vector<AdapterId>& adapters) {
        simulator_.add(plan_joint_eval_window(job_, plan_, data_, adapters).common());
    }

    void stream(Ends ends, std::int32_t last_round) {
        using Evaluations = ScheduleStream::Evaluations;
        ScheduleStream stream(job_, plan_, data_, progress_, 2,
                              ends == Ends::drain ? Evaluations::none : Evaluations::due);
        for (bool more = true; more;) {
            const std::int32_t rounds = std::min(planned_rounds, last_round - stream.round());
            const Window window =
                stream.next(rounds, rounds == last_round - stream.round()).common();
            more = !window.drains;
            simulator_.add(window);
            for (const BatchPlan& batch : window.batches) {
                if (!batch.evaluation) progress_.steps[index(batch.adapter)] = batch.step + 1;
            }
        }
        progress_.round = stream.round();
    }

    const Job& job_;
    const Plan& plan_;
    const std::vector<DatasetInfo>& data_;
    Progress progress_;
    Simulator simulator_;
};

std::string percent(double share) {
    return format_fixed(100.0 * share, 1) + "%";
}

void compare(const Work& work, const std::string& origin) {
    const Job job = job_of(work);
    const std::vector<DatasetInfo> data = data_of(work.dataset);
    Cluster cluster;
    cluster.ranks = stages;
    cluster.backend = BackendKind::cuda;
    cluster.device = "h200";
    cluster.bytes_per_rank = std::uint64_t{138} << 30;
    const Plan plan = make_plan(job, *model_preset("llama-3.1-8b"), data, cluster);
    const auto idle = [&](Ends ends, std::int32_t checkpoint_every) {
        return percent(Run(job, plan, data).play(ends, checkpoint_every).idle_share());
    };
    const std::int32_t last_steps = work.first_steps + 7 * work.more_steps;
    std::printf(
        "{\"section\": \"Idle time of whole runs by simulation, 8B, 8 adapters of unlike "
        "length, evaluated every %d steps, 4 x H200\", \"case\": \"%s, batch %d, %d to %d "
        "steps\", \"figures\": {\"drained at evaluations and ends\": \"%s\", \"in one "
        "stream\": \"%s\", \"and drained for a checkpoint every 100 rounds\": \"%s\"}, %s}\n",
        evaluated_every, work.dataset != nullptr ? work.dataset->name : "mixed", work.batch,
        work.first_steps, last_steps, idle(Ends::drain, 0).c_str(), idle(Ends::stream, 0).c_str(),
        idle(Ends::stream, 100).c_str(), origin.c_str());
    std::fflush(stdout);
}

}  // namespace
}  // namespace loratrain

int main(int argc, char** argv) {
    using namespace loratrain;
    const std::optional<std::string> origin = result_origin(argc, argv);
    if (!origin) return 2;
    for (const std::int32_t batch : {8, 32}) {
        for (const Lengths* dataset :
             {&summary_lengths[0], &summary_lengths[2], static_cast<const Lengths*>(nullptr)}) {
            compare({dataset, batch, 65, 15}, *origin);
        }
    }
    return 0;
}
