#include "plan/text/dry_run_text.h"

#include <algorithm>

#include "base/text.h"
#include "plan/cost/device.h"
#include "plan/cost/host_links.h"

namespace loratrain {

namespace {

constexpr std::size_t label_columns = 12;
constexpr double seconds_of_hour = 3600.0;
constexpr double watts_of_kilowatt = 1000.0;

std::string gibibytes(std::uint64_t bytes) {
    const double value = static_cast<double>(bytes) / static_cast<double>(std::uint64_t{1} << 30U);
    return format_fixed(value, value < 10.0 ? 2 : 1);
}

std::string answer_line(const std::string& label, const std::string& text) {
    std::string head = label;
    head.resize(label_columns, ' ');
    return wrapped(head + text, label_columns) + "\n";
}

/// "4 x h100 on 2 hosts", "2 CPU ranks", "1 CPU rank".
std::string machine_text(const Cluster& cluster) {
    const std::int32_t hosts = host_count(cluster);
    const std::string ranks = cluster.backend == BackendKind::cuda
                                  ? cat(cluster.ranks, " x ", device_of(cluster))
                                  : cat(cluster.ranks, " CPU rank", cluster.ranks == 1 ? "" : "s");
    return hosts == 1 ? ranks : cat(ranks, " on ", hosts, " hosts");
}

std::string memory_text(const Plan& plan) {
    std::uint64_t most = 0;
    std::uint64_t host = 0;
    for (const MemoryPlan& memory : plan.memory) {
        most = std::max(most, memory.total());
        host = std::max(host, memory.host + memory.host_activations);
    }
    const std::string room = plan.bytes_per_rank == 0
                                 ? " GiB; what it has is not known"
                                 : cat(" of ", gibibytes(plan.bytes_per_rank), " GiB");
    return cat("fullest rank ", gibibytes(most), room,
               host == 0 ? "" : cat(", and ", gibibytes(host), " GiB of pinned host memory"));
}

std::string fits_text(const DryRunAnswer& answer) {
    const std::string way = answer.cluster.ranks == 1 ? "" : " as " + answer.way;
    const std::string on =
        cat(" on ", machine_text(answer.cluster), way, ": ", memory_text(answer.plan));
    const bool fits = !answer.change || answer.change->times_as_fast > 0.0;
    return (fits ? "yes," : "not as the job says, but with the change below") + on;
}

std::string time_text(const DryRunAnswer& answer) {
    const bool gpus = answer.cluster.backend == BackendKind::cuda;
    const double hours = answer.seconds / seconds_of_hour;
    const double rank_hours = hours * answer.cluster.ranks;
    const auto device = find_device(device_of(answer.cluster));
    const double watts = device ? device->watts : 0.0;
    const std::string energy =
        watts > 0.0 ? cat("about ", three_digits(rank_hours * watts / watts_of_kilowatt), " kWh (",
                          watts, " W a GPU)")
                    : "energy not known";
    return cat(human_duration(answer.seconds), " training, ", three_digits(rank_hours),
               gpus ? " GPU-hours, " : " rank-hours, ", energy);
}

std::string change_text(const std::optional<JobChange>& change) {
    if (!change) return "nothing to change in the job file";
    if (change->times_as_fast <= 0.0) return "put this into the job file; then it fits:";
    return cat("put this into the job file; then it is ", format_fixed(change->times_as_fast, 2),
               " x as fast:");
}

}  // namespace

std::string seen_error_text(const Plan& plan, const Cluster& cluster) {
    if (cluster.costs || !plan.measured.empty()) return "";
    if (cluster.backend == BackendKind::cpu) return "a run measures its own";
    const auto device = find_device(device_of(cluster));
    if (!device || device->seen_error <= 0.0) return "no run has checked them";
    if (plan.model.delta_nets() != nullptr) {
        return "the runs that checked them had no gated delta nets";
    }
    if (has_experts(plan.model)) {
        return cat("runs of qwen3-30b-a3b on one H200, to which they are fitted, were within ",
                   plan.fp8_linears ? "4%" : "2%");
    }
    return cat("whole runs were within ", format_fixed(100.0 * device->seen_error, 0), "%");
}

std::string describe(const DryRunAnswer& answer) {
    const std::string yaml = answer.change ? answer.change->yaml : "";
    const std::string seen = answer.seen.empty() ? "" : "; " + answer.seen;
    return answer_line("fits", fits_text(answer)) + answer_line("time", time_text(answer)) +
           answer_line("change", change_text(answer.change)) + yaml +
           answer_line("certainty", cat("costs ", answer.costs, seen));
}

}  // namespace loratrain
