#include "base/error.h"
#include "config/inbox_yaml.h"
#include "config/job_yaml.h"
#include "fuzz/mutate.h"
#include "fuzz/sample_run.h"
#include "fuzz/target.h"
#include "io/weights/hf_config.h"
#include "plan/deploy/extend_plan.h"
#include "support/files.h"
#include "support/golden_path.h"

/// Job files, --set, inbox files and config.json.

namespace loratrain::fuzz {

namespace {

using test::get;
using test::golden_families;
using test::golden_path;
using test::put;

/// What was read can be written and read again.
void check_round_trip(const Job& job, const std::string& path) {
    const std::string text = to_yaml(job);
    put(path, text);
    if (to_yaml(read_job(path, {})) != text) throw Error("a job changes when it is written");
    const JobDifference difference = compare_jobs(text, text, path);
    if (!difference.harmful.empty()) throw Error("a job differs from itself");
}

class JobTarget final : public Target {
  public:
    explicit JobTarget(const std::string& folder) : folder_(folder) {
        texts_ = {sample_job_text("run"), get(LORATRAIN_SOURCE_DIR "/jobs/quickstart.yaml"),
                  to_yaml(SampleRun("run").job)};
    }
    void run(Draw& draw) override {
        std::string text = draw.among(texts_);
        std::vector<Override> overrides;
        if (draw.one_in(4)) {
            overrides.push_back({draw.among(keys), mutate_text(draw.among(values), draw)});
        } else {
            text = mutate_text(text, draw);
        }
        put(folder_ + "/job.yaml", text);
        const Job job = read_job(folder_ + "/job.yaml", overrides);
        check_round_trip(job, folder_ + "/resolved.yaml");
    }

  private:
    static inline const std::vector<std::string> keys{
        "run.dir",         "run",
        "defaults.r",      "adapters.one.max_steps",
        "adapters",        "datasets.math.path",
        "datasets",        "parallel.microbatch_tokens",
        "eval.split",      "x.y.z",
        "model.synthetic", ""};
    static inline const std::vector<std::string> values{
        "runs/x", "{dir: x, seed: 3}", "8", "[{name: a}, {name: b, r: 2}]", "0.5", "'a'"};
    std::string folder_;
    std::vector<std::string> texts_;
};

class InboxTarget final : public Target {
  public:
    explicit InboxTarget(const std::string& folder) : sample_(folder) {}
    void run(Draw& draw) override {
        Job job = sample_.job;
        add_to_job(job, read_inbox(mutate_text(sample_inbox_text(), draw), "inbox.yaml", job));
        std::vector<DatasetInfo> datasets = sample_.datasets;
        while (datasets.size() < job.datasets.size()) datasets.push_back(datasets.front());
        Plan plan = sample_.plan;
        extend_plan(plan, job, datasets, "inbox.yaml");
        check_round_trip(job, job.run.dir + "/resolved.yaml");
    }

  private:
    SampleRun sample_;
};

class ConfigTarget final : public Target {
  public:
    ConfigTarget() {
        for (const std::string& family : golden_families({})) {
            texts_.push_back(get(golden_path(family) + "/base/config.json"));
        }
    }
    void run(Draw& draw) override {
        parse_hf_config(mutate_text(draw.among(texts_), draw), "config.json");
    }

  private:
    std::vector<std::string> texts_;
};

}  // namespace

std::unique_ptr<Target> job_target(const std::string& folder) {
    return std::make_unique<JobTarget>(folder);
}

std::unique_ptr<Target> inbox_target(const std::string& folder) {
    return std::make_unique<InboxTarget>(folder);
}

std::unique_ptr<Target> config_target(const std::string& /*folder*/) {
    return std::make_unique<ConfigTarget>();
}

}  // namespace loratrain::fuzz
