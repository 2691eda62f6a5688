#include "plan/deploy/check_deployment.h"

#include <algorithm>
#include <set>
#include <string>

#include "base/text.h"
#include "plan/memory/state_sizes.h"
#include "plan/memory/streamed_layers.h"
#include "plan/place.h"
#include "plan/tensor_shard.h"

namespace loratrain {

namespace {

constexpr std::int64_t most_ranks = 1'000'000'000;  // beyond them numbers say nothing

/// "1, 2, 4 or 8"
std::string alternatives(const std::vector<std::int32_t>& numbers) {
    std::string text;
    for (std::size_t i = 0; i < numbers.size(); ++i) {
        if (i > 0) text += i + 1 == numbers.size() ? " or " : ", ";
        text += std::to_string(numbers[i]);
    }
    return text;
}

class DeploymentCheck {
  public:
    DeploymentCheck(const Job& job, const ModelSpec& model, const Cluster& cluster,
                    Problems& problems)
        : job_(job),
          where_(cat(job.path, ": parallel.deployment")),
          model_(model),
          cluster_(cluster),
          problems_(problems) {}

    void run(const std::vector<ReplicaJob>& deployment) {
        std::int64_t ranks = 0;
        for (std::size_t i = 0; i < deployment.size(); ++i) {
            check(deployment[i], cat(where_, "[", i, "]"));
            const std::int64_t of_one = std::int64_t{deployment[i].tensor} * deployment[i].stages;
            ranks += std::min(most_ranks, of_one) * deployment[i].count;
        }
        check_ranks(std::min(most_ranks, ranks));
        const bool alike = std::all_of(
            deployment.begin(), deployment.end(),
            [&](const ReplicaJob& of) { return of.tensor == deployment.front().tensor; });
        if (alike || !has_coded_states(job_)) return;
        problems_.add(where_ + ".tp",
                      "differs between replicas, which optim: adamw_8bit does not allow",
                      "give all replicas the same tp, or use optim: adamw_torch");
    }

  private:
    void check(const ReplicaJob& replica, const std::string& where) {
        if (!can_shard(model_, replica.tensor)) {
            problems_.add(where + ".tp",
                          cat(replica.tensor, " ", shard_obstacle(model_, replica.tensor)),
                          cat("use ", alternatives(tensor_degrees(model_))));
        }
        if (replica.stages > model_.layers) {
            problems_.add(
                where + ".pp",
                cat(replica.stages, " stages, but the model has ", model_.layers, " layers"),
                cat("use at most ", model_.layers));
        }
    }

    void check_ranks(std::int64_t ranks) {
        if (ranks == cluster_.ranks) return;
        const std::int64_t more = cluster_.ranks - ranks;
        problems_.add(where_,
                      cat("takes ", ranks, " ranks, but ", cluster_.ranks,
                          cluster_.ranks == 1 ? " was started" : " were started"),
                      cat("start ", ranks, " ranks (mpirun -np ", ranks, "), or ",
                          more > 0 ? cat("add {tp: 1, pp: 1, count: ", more, "}")
                                   : cat("give a deployment of ", cluster_.ranks)));
    }

    const Job& job_;
    std::string where_;
    const ModelSpec& model_;
    const Cluster& cluster_;
    Problems& problems_;
};

/// What ranks [first, first + count) of one host put there.
struct Taken {
    std::uint64_t copies = 0;       ///< of layers that stream
    std::uint64_t activations = 0;  ///< of layers that are offloaded
    std::uint64_t other = 0;        ///< of CPU ranks
    std::set<std::int32_t> layers;  ///< that stream
};

Taken taken_by(const Plan& plan, std::int32_t first, std::int32_t count, bool cpu) {
    Taken taken;
    for (std::int32_t rank = first; rank < first + count; ++rank) {
        const MemoryPlan& memory = plan.memory[static_cast<std::size_t>(rank)];
        taken.copies += memory.host;
        taken.activations += memory.host_activations;
        if (cpu) taken.other += memory.total();
        const RankPlace place = place_of(plan, rank);
        const StagePlan& stage = plan.replicas[place.replica].stages[place.stage];
        for (std::int32_t l = 0; l < stage.layer_count; ++l) {
            if (is_streamed(stage, l)) taken.layers.insert(stage.first_layer + l);
        }
    }
    return taken;
}

std::string ranks_text(std::int32_t first, std::int32_t count) {
    return count == 1 ? cat("rank ", first) : cat("ranks ", first, "-", first + count - 1);
}

std::string has_text(std::uint64_t room, std::uint64_t taken) {
    return cat(" of the host's memory, of which it has ",
               human_bytes(room - std::min(room, taken)));
}

}  // namespace

void check_deployment(const Job& job, const ModelSpec& model, const Cluster& cluster,
                      Problems& problems) {
    DeploymentCheck(job, model, cluster, problems).run(job.parallel.deployment);
}

void check_layer_counts(const Job& job, const ModelSpec& model, Problems& problems) {
    const ParallelJob& parallel = job.parallel;
    const auto check = [&](const std::string& key, const std::string& field, int layers,
                           int stages) {
        const std::int64_t most = std::max<std::int64_t>(1, model.layers - (stages - 1));
        if (layers <= most) return;
        problems.add(
            cat(job.path, ": ", key),
            cat(field, ": ", layers, " is more layers than a rank can have: the model has ",
                model.layers, stages > 1 ? cat(" in ", stages, " stages") : ""),
            cat("give at most ", most));
    };
    int stages = parallel.pipeline_stages.value_or(1);
    for (std::size_t i = 0; i < parallel.deployment.size(); ++i) {
        const ReplicaJob& replica = parallel.deployment[i];
        stages = i == 0 ? replica.stages : std::min(stages, replica.stages);
        check(cat("parallel.deployment[", i, "].recompute"), "layers",
              replica.recomputed_layers.value_or(0), replica.stages);
    }
    check("parallel.recompute", "layers", parallel.recomputed_layers.value_or(0), stages);
    const Residency& residency = job.model.residency;
    const bool some = residency.kind == Residency::Kind::some;
    check("model.residency", "resident_layers", some ? residency.layers : 0, stages);
}

std::uint64_t host_room(const Cluster& cluster) {
    const bool cpu = cluster.backend == BackendKind::cpu;
    return cpu ? cluster.bytes_per_rank : cluster.host_bytes_per_rank;
}

void check_host_memory(const Job& job, const Cluster& cluster, const Plan& plan,
                       Problems& problems) {
    const std::vector<std::int32_t> hosts = hosts_of(cluster);
    for (auto host = hosts.begin(); host != hosts.end();) {
        const auto end =
            std::find_if(host, hosts.end(), [&](auto other) { return other != *host; });
        const auto first = static_cast<std::int32_t>(host - hosts.begin());
        const auto count = static_cast<std::int32_t>(end - host);
        host = end;
        const std::uint64_t room = host_room(cluster) * static_cast<std::uint64_t>(count);
        const Taken taken = taken_by(plan, first, count, cluster.backend == BackendKind::cpu);
        const std::uint64_t added = taken.copies + taken.activations;
        if (room == 0 || added == 0 || added + taken.other <= room) continue;
        if (taken.activations > 0) {
            problems.add(
                cat(job.path, ": parallel.offload"),
                cat("activations of ", ranks_text(first, count), " take ",
                    human_bytes(taken.activations), has_text(room, taken.other + taken.copies)),
                "use fewer layers, as in offload: {layers: 4}, smaller "
                "microbatch_tokens, or offload: none");
            continue;
        }
        problems.add(
            cat(job.path, ": model.residency"),
            cat("the ", taken.layers.size(), " layers that stream on ", ranks_text(first, count),
                " need ", human_bytes(taken.copies), has_text(room, taken.other)),
            "use a smaller or quantised base, residency: all, or more ranks on other "
            "hosts");
    }
}

}  // namespace loratrain
