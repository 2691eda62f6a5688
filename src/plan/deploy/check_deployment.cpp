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

/// What keeps so many lanes from sharing the model.
std::string obstacle(const ModelSpec& model, std::int32_t tensor) {
    if (model.heads % tensor != 0) return cat("does not divide ", model.heads, " heads");
    if (model.kv_heads % tensor != 0 && tensor % model.kv_heads != 0) {
        return cat("neither divides ", model.kv_heads,
                   " key-value heads nor is it a multiple of them");
    }
    if (model.qk_norm_whole) return "lanes cannot share norms over all heads of q and k";
    if (model.logits_soft_cap > 0.0) return "lanes cannot share logits with a soft cap";
    if (model.has_experts()) return "lanes cannot share experts";
    if (model.fused_qkv || model.fused_gate_up) {
        return cat("lanes cannot share fused linears (", model.fused_qkv ? "qkv_proj, " : "",
                   "gate_up_proj)");
    }
    return cat("lanes are too many for an intermediate size of ", model.intermediate_size,
               ", heads of ", model.head_dim, " and a vocabulary of ", model.vocab_size);
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
            problems_.add(where + ".tp", cat(replica.tensor, " ", obstacle(model_, replica.tensor)),
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
