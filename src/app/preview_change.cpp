#include "app/preview_change.h"

#include <string>
#include <vector>

#include "base/error.h"
#include "base/text.h"
#include "config/job_words.h"
#include "plan/cost/device.h"
#include "plan/deploy/replica_options.h"
#include "plan/deployments/usual_way.h"

namespace loratrain {

namespace {

constexpr double worth_saving = 10.0;  ///< seconds of a whole job

/// Keys that a job sets and that are left to the planner instead.
struct OpenedKeys {
    bool deployment = false;
    bool microbatch_tokens = false;
    bool recompute = false;
    bool residency = false;
    bool policy = false;
    bool any() const { return deployment || microbatch_tokens || recompute || residency || policy; }
};

OpenedKeys keys_to_open(const Job& job, const Cluster& cluster) {
    const ParallelJob& parallel = job.parallel;
    const bool gpus = cluster.backend == BackendKind::cuda;
    const bool chosen = parallel.deployment_open || parallel.find_deployment;
    return {.deployment = gpus && cluster.ranks > 1 && !chosen && !parallel.by_workers() &&
                          find_device(device_of(cluster)).has_value(),
            .microbatch_tokens = parallel.microbatch_tokens.has_value(),
            .recompute = parallel.recompute != Recompute::automatic,
            .residency = gpus && job.model.residency.kind != Residency::Kind::automatic,
            .policy = job.schedule.policy != SchedulePolicy::balanced};
}

Job opened_job(Job job, const OpenedKeys& keys) {
    ParallelJob& parallel = job.parallel;
    if (keys.deployment) {
        parallel.pipeline_stages = std::nullopt;
        parallel.deployment.clear();
        parallel.deployment_open = true;
    }
    if (keys.microbatch_tokens) parallel.microbatch_tokens = std::nullopt;
    if (keys.recompute) {
        parallel.recompute = Recompute::automatic;
        parallel.recomputed_layers = std::nullopt;
    }
    if (keys.residency) job.model.residency = {};
    if (keys.policy) job.schedule.policy = SchedulePolicy::balanced;
    return job;
}

/// What the planner took for the opened keys, as flow mappings for the job file.
class ChosenYaml {
  public:
    ChosenYaml(const Job& job, const OpenedKeys& keys, const PlannedPreview& taken,
               const PlannedPreview* own)
        : job_(job), keys_(keys), taken_(taken), own_(own) {}

    /// "" = what the job has already.
    std::string run() const {
        std::string text = section("parallel", parallel_keys());
        if (keys_.residency && resident(taken_) != (own_ != nullptr ? resident(*own_) : -1)) {
            text += section("model", {"residency: auto"});
        }
        if (keys_.policy) text += section("schedule", {"policy: balanced"});
        return text;
    }

  private:
    static std::string section(const char* name, const std::vector<std::string>& keys) {
        return keys.empty() ? "" : cat(name, ": {", join(keys, ", "), "}\n");
    }
    static const ReplicaPlan& first(const PlannedPreview& preview) {
        return preview.plan().replicas.front();
    }
    static std::int32_t resident(const PlannedPreview& preview) {
        return first(preview).stages.front().resident_layers;
    }

    std::vector<std::string> parallel_keys() const {
        std::vector<std::string> keys;
        if (keys_.deployment) add_deployment(keys);
        if (keys_.microbatch_tokens) add_tokens(keys);
        const bool recomputes = first(taken_).recompute != Recompute::none || own_ == nullptr ||
                                first(*own_).recompute != Recompute::none;
        if (keys_.recompute && recomputes) keys.emplace_back("recompute: auto");
        return keys;
    }

    void add_deployment(std::vector<std::string>& keys) const {
        if (own_ != nullptr &&
            same_cuts(deployment_of(taken_.plan(), 0), deployment_of(own_->plan(), 0))) {
            return;
        }
        const auto& deployment = taken_.job.parallel.deployment;
        const bool stages = job_.parallel.pipeline_stages.has_value();
        if (stages) keys.emplace_back("pipeline_stages: auto");
        if (!deployment.empty()) {
            keys.push_back("deployment: " + deployment_text(deployment));
        } else if (!stages) {
            keys.push_back(cat("deployment: ", pipeline_word));
        }
    }

    /// Replicas may have sizes of their own, which auto finds again.
    void add_tokens(std::vector<std::string>& keys) const {
        const std::int64_t tokens = first(taken_).microbatch_tokens;
        const bool one = taken_.plan().replicas.size() == 1;
        if (one && own_ != nullptr && first(*own_).microbatch_tokens == tokens) return;
        keys.push_back(one ? cat("microbatch_tokens: ", tokens) : "microbatch_tokens: auto");
    }

    const Job& job_;
    const OpenedKeys& keys_;
    const PlannedPreview& taken_;
    const PlannedPreview* own_;
};

}  // namespace

std::optional<ProposedChange> find_change(const CommandLine& command_line, const MpiSession& mpi,
                                          const Job& job, const JobInputs& inputs,
                                          const Cluster& cluster, const PlannedPreview* own) {
    const OpenedKeys keys = keys_to_open(job, cluster);
    if (!keys.any()) return std::nullopt;
    std::optional<ProposedChange> found;
    try {
        found = {{}, planned_preview(command_line, mpi, opened_job(job, keys), inputs, cluster)};
    } catch (const InputError&) {
        return std::nullopt;  // what is wrong has nothing to do with these keys
    }
    JobChange& change = found->change;
    change.yaml = ChosenYaml(job, keys, found->preview, own).run();
    bool gains = true;
    if (own != nullptr) {
        const double now = own->seconds;
        const double then = found->preview.seconds;
        change.times_as_fast = now / then;
        gains = now >= (1.0 + usual_gain) * then && now - then >= worth_saving;
    }
    return gains && !change.yaml.empty() ? found : std::nullopt;
}

}  // namespace loratrain
