#include <nlohmann/json.hpp>

#include "backend/make_backend.h"
#include "base/error.h"
#include "base/tensor.h"
#include "config/job_yaml.h"
#include "fuzz/mutate.h"
#include "fuzz/sample_run.h"
#include "fuzz/target.h"
#include "io/files.h"
#include "measure/cost_cache.h"
#include "plan/replica_view.h"
#include "plan/text/plan_text.h"
#include "report/report_page.h"
#include "support/files.h"
#include "train/adapter_table.h"
#include "train/checkpoint/best_adapter.h"
#include "train/checkpoint/stored_adapter.h"
#include "train/records/exports.h"
#include "train/records/metrics.h"

/// What a run leaves behind and a later start, `report` and `status` read.

namespace loratrain::fuzz {

namespace {

namespace fs = std::filesystem;
using test::get;
using test::put;

/// Good contents of a folder's files, one of which a case changes.
class Files {
  public:
    explicit Files(std::string folder) : folder_(std::move(folder)) {}
    void add(const std::string& name, const std::string& text) {
        fs::create_directories(fs::path(path(name)).parent_path());
        put(path(name), text);
        names_.push_back(name);
        good_.push_back(text);
    }
    /// What adding files from elsewhere has left.
    void adopt(const std::string& name) { add(name, get(path(name))); }
    std::string path(const std::string& name) const { return folder_ + "/" + name; }
    /// Changes one file; returns its name.
    const std::string& change(Draw& draw) {
        for (std::size_t i = 0; i < names_.size(); ++i) put(path(names_[i]), good_[i]);
        const std::size_t changed = draw.below(names_.size());
        const std::string& name = names_[changed];
        const std::string& good = good_[changed];
        const bool tensors = name.ends_with(".safetensors") || name.ends_with(".best");
        put(path(name), tensors ? mutate_safetensors(good, draw) : mutate_text(good, draw));
        return name;
    }

  private:
    std::string folder_;
    std::vector<std::string> names_;
    std::vector<std::string> good_;
};

RunStatus some_status() {
    RunStatus status;
    status.state = "running";
    status.reason = "none";
    status.round = 3;
    status.rounds = 9;
    status.elapsed_seconds = 12.5;
    status.tokens_per_second = 99.5;
    status.seconds_left = 40.0;
    status.seconds_per_round = 0.25;
    status.host = "node";
    status.pid = 42;
    status.updated = 1.7e9;
    status.adapters = {{"one", "RUNNING", 3, 9, 2.5, 2.25, 0.5, 0},
                       {"two", "DONE", 4, 4, 1, {}, {}, 3}};
    return status;
}

std::string some_trace() {
    std::vector<TraceSpan> spans;
    for (int i = 0; i < 6; ++i) {
        const double at = 0.01 * i;
        spans.push_back({i % 2, 0, cat("forward ", i / 2), "forward", at, at + 0.008,
                         share_args({{"one", 30}, {"two", 20}})});
        spans.push_back({i % 2, 1, "send", "send", at + 0.008, at + 0.009, {}});
    }
    return trace_to_json(spans, {{"times", "simulated"}});
}

constexpr const char* provenance =
    R"({"starts": [{"version": "0.1", "libraries": {"a": "1"}, "started": "2026-01-01T00:00:00+0000",
"continues": "", "hosts": ["a", "b"], "devices": [], "ended": "x", "reason": "done"}, {"git": "y"}],
"job": "text", "weights": "base.h5", "data_checksums": {"math": "0"}, "run_seed": 7})";

constexpr const char* metrics =
    "{\"step\": 0, \"eval_loss\": 4.0, \"eval_exact_match\": 0.0}\n"
    "{\"step\": 1, \"epoch\": 0.1, \"loss\": 3.0, \"grad_norm\": 1.5, \"learning_rate\": 0.001,"
    " \"tokens\": 10, \"tokens_per_second\": 11.5, \"elapsed_seconds\": 1.5}\n"
    "{\"step\": 2, \"epoch\": 0.2, \"loss\": null, \"tokens\": 20, \"elapsed_seconds\": 2.5}\n"
    "{\"step\": 3, \"epoch\": 0.3, \"loss\": 2.0, \"tokens\": 20, \"elapsed_seconds\": 3.5}\n";

/// `report`, `status`, and what a start takes over: the plan's sizes, metrics, costs.
class RecordsTarget final : public Target {
  public:
    explicit RecordsTarget(const std::string& folder) : sample_(folder), files_(folder) {
        files_.add("resolved.yaml", sample_.identity.job_yaml);
        files_.add("plan.yaml", to_text(sample_.plan));
        files_.add("status.json", to_json(some_status()));
        files_.add("provenance.json", provenance);
        files_.add("memory.json", memory_to_json({{1000, 2000}}));
        files_.add("devices/rank-0.jsonl",
                   to_line({1000.0, 0.0, 0, 5000, 3000, {300.5, 1755.0, 60.0, 9000, true, false}}) +
                       "\n" + to_line({1010.0, 10.0, 0, 5000, 4000}) + "\n");
        files_.add("trace.json", some_trace());
        files_.add("costs.json", costs_to_json({{"key", sample_.plan.costs}}));
        for (const AdapterJob& adapter : sample_.job.adapters) {
            files_.add("adapters/" + adapter.name + "/metrics.jsonl", metrics);
        }
        report_page(read_run(folder), 1.7e9);
    }
    void run(Draw& draw) override {
        const std::string name = files_.change(draw);
        const std::string& dir = sample_.job.run.dir;
        find_costs(files_.path("costs.json"), "key");
        if (name == "plan.yaml") continue_plan();
        MetricsLog(sample_.job).restore(AdapterId{0}, 2);
        RunRecord record = read_run(dir);
        record.pulse = {Life::alive, 3.0};
        report_page(record, 1.7e9);
        const RunStatus status = read_status(dir).value_or(RunStatus{});
        const auto alive = [](std::int64_t) { return true; };
        status_text(dir, status, pulse_of(status, 1.7e9, "node", alive));
    }

  private:
    /// Texts that are no plan are refused by any exception.
    void continue_plan() {
        Plan former;
        try {
            former = plan_from_text(get(files_.path("plan.yaml")));
            only_replica(former);
        } catch (const std::exception&) {
            return;
        }
        plan_job(sample_.job, sample_.model, sample_.datasets, sample_.cluster, &former);
    }

    SampleRun sample_;
    Files files_;
};

/// Two checkpoints, of which the newer one is damaged, half of the time with checksums that fit.
class CheckpointTarget final : public Target {
  public:
    explicit CheckpointTarget(const std::string& folder)
        : sample_(folder), files_(folder + "/ckpt/8"), backend_(make_backend("cpu", {1, 0})) {
        write(4);
        write(8);
        put(folder + "/ckpt/LATEST", "8\n");
        for (const char* name : {"state.json", "job.yaml", "one.safetensors", "two.safetensors",
                                 "one.best", "manifest.json"}) {
            files_.adopt(name);
        }
        if (find_checkpoint(sample_.job, sample_.plan, sample_.identity, "")->set_back) {
            throw Error("the good checkpoint is not good");
        }
    }
    void run(Draw& draw) override {
        const std::string name = files_.change(draw);
        if (name != "manifest.json") write_manifest(8, draw.one_in(2));
        const auto found = find_checkpoint(sample_.job, sample_.plan, sample_.identity, "");
        AdapterBank bank(sample_.job, only_replica(sample_.plan),
                         sample_.plan.replicas[0].stages[0], *backend_);
        const RunState state = load_checkpoint(found->path, sample_.job, sample_.model,
                                               sample_.plan.replicas[0].stages[0], bank);
        AdapterTable table(sample_.job, sample_.plan, sample_.datasets);
        table.restore(state);
        plan_window(sample_.job, sample_.plan, sample_.datasets, table.progress(), 2);
        mend_exports(sample_.job, sample_.model, state, found->path);
        restore_best_adapters(sample_.job, sample_.model, state, found->path);
    }

  private:
    std::string dir(int round) const { return cat(sample_.job.run.dir, "/ckpt/", round, "/"); }
    std::vector<NamedTensor> tensors(const AdapterJob& adapter, bool all) const {
        std::vector<NamedTensor> stored;
        for (const StoredPart& part : stored_parts) {
            if (!all && part.suffix[0] != '\0') break;
            for (NamedTensor& tensor : adapter_tensors(adapter, sample_.model, {0, 2}, part.part)) {
                tensor.name += part.suffix;
                tensor.values.assign(static_cast<std::size_t>(element_count(tensor.shape)), 0.5F);
                stored.push_back(std::move(tensor));
            }
        }
        return stored;
    }
    void write(int round) const {
        RunState state;
        state.round = round;
        state.elapsed_seconds = 1.5;
        state.adapters.resize(2);
        for (AdapterState& adapter : state.adapters) adapter.steps = round;
        state.adapters[0].best_step = 3;
        state.adapters[0].status = AdapterStatus::stopped;
        fs::create_directories(dir(round));
        put(dir(round) + "state.json", to_json(state, sample_.job));
        put(dir(round) + "job.yaml", sample_.identity.job_yaml);
        for (const AdapterJob& adapter : sample_.job.adapters) {
            write_stored_adapter(dir(round) + stored_adapter_name(adapter),
                                 sources_of(tensors(adapter, true)), {round, 0});
        }
        write_safetensors(dir(round) + "one.best", tensors(sample_.job.adapters[0], false));
        write_manifest(round, true);
    }
    void write_manifest(int round, bool fitting) const {
        nlohmann::json manifest{{"format", "loratrain-checkpoint-1"},
                                {"weights_checksum", sample_.identity.weights_checksum},
                                {"data_checksums", sample_.identity.data_checksums}};
        if (!fitting) return;
        for (const auto& entry : fs::directory_iterator(dir(round))) {
            const std::string name = entry.path().filename().string();
            if (name != "manifest.json") manifest["files"][name] = file_checksum(entry.path());
        }
        put(dir(round) + "manifest.json", manifest.dump(1));
    }

    SampleRun sample_;
    Files files_;
    std::unique_ptr<Backend> backend_;
};

}  // namespace

std::unique_ptr<Target> records_target(const std::string& folder) {
    return std::make_unique<RecordsTarget>(folder);
}

std::unique_ptr<Target> checkpoint_target(const std::string& folder) {
    return std::make_unique<CheckpointTarget>(folder);
}

std::span<const TargetKind> target_kinds() {
    static constexpr TargetKind kinds[] = {
        {"job", 4, job_target},
        {"inbox", 2, inbox_target},
        {"config", 2, config_target},
        {"import", 2, import_target},
        {"base", 3, base_target},
        {"token_lines", 2, token_lines_target},
        {"token_hdf5", 2, token_hdf5_target},
        {"peft", 2, peft_target},
        {"records", 3, records_target},
        {"checkpoint", 3, checkpoint_target},
    };
    return kinds;
}

}  // namespace loratrain::fuzz
