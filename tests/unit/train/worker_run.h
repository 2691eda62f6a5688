#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <sstream>
#include <string>
#include <vector>

#include "base/log.h"
#include "config/job_yaml.h"
#include "io/safetensors.h"
#include "plan/deploy/extend_plan.h"
#include "plan/deploy/make_plan.h"
#include "plan/memory/memory_model.h"
#include "support/small_model.h"
#include "train/checkpoint/checkpoint_folder.h"
#include "train/worker_loop.h"
#include "unit/train/fake_ranks.h"
#include "unit/train/run_folder.h"

namespace loratrain::test {

/// A run of one worker whose ranks train nothing (fake_ranks.h), in a directory of its own. A test
/// says what the job is, calls make(), says what ranks do, and run().
class WorkerRun {
  public:
    static constexpr AdapterId first{0};
    static constexpr AdapterId second{1};
    static constexpr AdapterId third{2};
    using Steps = std::vector<std::int32_t>;

    WorkerRun() {
        job.adapters.clear();
        job.model.weights = "/base.h5";
        job.exports.tokenizer = false;
        job.checkpoint.every_steps = 0;
        job.checkpoint.every_minutes = 0;
        job.datasets[0].name = "data";
        job.datasets[0].path = "/data.jsonl";
        data().train.assign(16, {10, 9});
        cluster.backend = BackendKind::cpu;
    }

    // ---- before make()

    /// Named a0, a1, ...; each step takes two of 16 samples.
    AdapterJob& add(std::int32_t steps) {
        AdapterJob& adapter = job.adapters.emplace_back();
        adapter.name = "a" + std::to_string(job.adapters.size() - 1);
        adapter.r = 4;
        adapter.global_batch_size = 2;
        adapter.max_steps = steps;
        return adapter;
    }
    void add(std::initializer_list<std::int32_t> steps) {
        for (const std::int32_t of_one : steps) add(of_one);
    }
    void add_trials(int count, std::int32_t steps) {
        for (int i = 0; i < count; ++i) add(steps).trial = true;
        job.sweep.emplace();
    }
    void evaluate_every(int steps) {
        data().eval.assign(4, {10, 9});
        job.eval.every_steps = steps;
    }
    DatasetInfo& data() { return datasets.front(); }

    void make(const RunState* from = nullptr) {
        plan = make_plan(job, small_model(), datasets, cluster);
        if (memory_for) limit_memory(*memory_for);
        identity.job_yaml = "job";
        start(from);
    }
    /// Another start, from a state of before or anew; ranks are as a test left them.
    void start(const RunState* from = nullptr) {
        loop.reset();
        if (!ranks) ranks.emplace(job, plan);
        stop.emplace(job, stop_after);
        parts.reset(new RunParts{job, plan, files, datasets, identity, *stop, {}});
        parts->redeploys = redeploys;
        loop.emplace(*parts, *ranks);
        if (from != nullptr) loop->restore(*from, false);
    }

    ExitCode run() { return loop->run(0); }

    // ---- what it leaves

    RunState state() const { return loop->state(); }
    AdapterStatus status(AdapterId a) const { return state().adapters[index(a)].status; }
    std::int32_t steps(AdapterId a) const { return state().adapters[index(a)].steps; }
    const std::string& name(AdapterId a) const { return job.adapters[index(a)].name; }
    std::string of(AdapterId a, const std::string& file) const {
        return folder.path("adapters/" + name(a) + "/" + file);
    }
    bool has(const std::string& path) const { return std::filesystem::exists(path); }
    bool is_exported(AdapterId a) const { return has(of(a, "DONE")); }
    /// Of which its weights are: of the file of an export or of best/.
    static std::int32_t step_in(const std::string& path) {
        const SafetensorsFile file(path);
        const std::string& tensor = file.entries().begin()->first;
        return static_cast<std::int32_t>(file.read_floats(tensor).front());
    }
    std::int32_t exported_step(AdapterId a) const {
        return step_in(of(a, "adapter_model.safetensors"));
    }
    std::int32_t best_step(AdapterId a) const {
        return step_in(of(a, "best/adapter_model.safetensors"));
    }
    std::string checkpoint(std::int32_t round) const {
        return (checkpoint_folder(job) / std::to_string(round)).string();
    }
    std::int32_t stored_step(std::int32_t round, AdapterId a) const {
        return step_in(checkpoint(round) + "/" + stored_adapter_name(job.adapter(a)));
    }
    RunState stored(std::int32_t round) const { return stored_state(checkpoint(round), job); }
    Steps rounds_stored() const {
        const std::vector<std::int64_t> stored = stored_rounds(checkpoint_folder(job));
        Steps rounds(stored.begin(), stored.end());
        std::sort(rounds.begin(), rounds.end());
        return rounds;
    }
    /// Steps of which metrics.jsonl has such rows: "loss", "eval_loss".
    Steps metrics(AdapterId a, const std::string& key) const {
        Steps found;
        std::istringstream lines(get(of(a, "metrics.jsonl")));
        for (std::string line; std::getline(lines, line);) {
            if (line.find("\"" + key + "\"") == std::string::npos) continue;
            const std::size_t at = line.find("\"step\":") + 7;
            found.push_back(std::stoi(line.substr(at)));
        }
        return found;
    }

    // ---- orders of people

    /// A file in the inbox that was last changed some seconds ago.
    void put(const std::string& file, const std::string& text = "") const {
        namespace fs = std::filesystem;
        folder.write("inbox/" + file, text);
        const std::string path = folder.path("inbox/" + file);
        fs::last_write_time(path, fs::file_time_type::clock::now() - std::chrono::seconds(5));
    }
    /// Files add an adapter of so many steps as their text says.
    void let_grow() {
        write_data();
        ranks->grow = [this](const InboxFile& file) {
            add(std::stoi(file.text)).name = std::filesystem::path(file.path).stem().string();
            Plan next = plan;
            extend_plan(next, job, datasets, file.path);
            plan.adapters = next.adapters;  // all else stays where it is
        };
    }
    /// Data behind the plan's numbers, which warnings of additions look at.
    void write_data() {
        std::string lines;
        for (int i = 0; i < 16; ++i) {
            lines += "{\"input_ids\": [1,2,3,4,5,6,7,8,9,10], \"labels\": ";
            lines += "[-100,2,3,4,5,6,7,8,9,10]}\n";
        }
        folder.write("data.jsonl", lines);
        files.train.emplace_back(folder.path("data.jsonl"), job.datasets[0], 61);
    }
    /// Once, before the adapter takes this step (1 = the first).
    void before(AdapterId a, std::int32_t step, std::function<void()> work) {
        const auto then = ranks->before_step;
        ranks->before_step = [=, done = false](const BatchPlan& batch) mutable {
            if (then) then(batch);
            if (done || batch.adapter != a || batch.step + 1 != step) return;
            done = true;
            work();
        };
    }

    /// A window begins with every so many rounds, for evaluations that end nobody.
    void cut_windows(int rounds) {
        evaluate_every(rounds);
        job.eval.early_stopping_patience = 1000;
    }
    /// Memory for so many adapters like the first, and none for copies.
    void limit_memory(std::size_t adapters) {
        const StagePlan& stage = plan.replicas.front().stages.front();
        const std::uint64_t bytes = adapters * adapter_bytes_on(stage, first, job, plan.model);
        MemoryPlan& memory = plan.memory.front();
        plan.bytes_per_rank = memory.total() - memory.adapters + bytes;
        memory.adapters = bytes;
        if (plan.first_admitted.size() > adapters) plan.first_admitted.resize(adapters);
    }

    log::Silence silence;
    RunFolder folder;
    Job& job = folder.job;
    std::vector<DatasetInfo> datasets{{}};
    Cluster cluster;
    Plan plan;
    DatasetFiles files;
    RunIdentity identity;
    std::optional<std::size_t> memory_for;  ///< adapters at once; none = enough
    std::optional<int> stop_after;
    std::function<bool(const RunState&)> redeploys;
    std::optional<StopConditions> stop;
    std::unique_ptr<RunParts> parts;
    std::optional<FakeRanks> ranks;
    std::optional<WorkerLoop> loop;
};

}  // namespace loratrain::test
