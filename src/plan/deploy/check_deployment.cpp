#include "plan/deploy/check_deployment.h"

#include <algorithm>

#include "base/text.h"
#include "plan/memory/state_sizes.h"
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
        problems_.add(where_ + ".tp", "differs, which optim: adamw_8bit does not go with",
                      "give all replicas the same tp: lanes make codes of what they have");
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
                                   : cat("deploy for ", cluster_.ranks)));
    }

    const Job& job_;
    std::string where_;
    const ModelSpec& model_;
    const Cluster& cluster_;
    Problems& problems_;
};

}  // namespace

void check_deployment(const Job& job, const ModelSpec& model, const Cluster& cluster,
                      Problems& problems) {
    DeploymentCheck(job, model, cluster, problems).run(job.parallel.deployment);
}

}  // namespace loratrain
