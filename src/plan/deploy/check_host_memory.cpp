#include "plan/deploy/check_host_memory.h"

#include <algorithm>
#include <set>
#include <string>

#include "base/text.h"
#include "plan/memory/streamed_layers.h"
#include "plan/place.h"

namespace loratrain {

namespace {

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
