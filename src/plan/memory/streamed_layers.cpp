#include "plan/memory/streamed_layers.h"

#include <algorithm>
#include <limits>
#include <map>
#include <set>
#include <tuple>
#include <utility>

#include "base/arithmetic.h"
#include "base/error.h"
#include "plan/place.h"
#include "plan/replica_view.h"

namespace loratrain {

namespace {

constexpr std::uint64_t page_bytes = 4096;

StreamedGroup group_layout(const ReplicaView& view, LinearGroup group, std::uint64_t& bytes) {
    StreamedGroup layout;
    bytes = group_bytes(view, group);
    if (view.plan.fp8_linears) {
        layout.rows = 1;
        layout.row_bytes = layout.pitch = fp8_group_layout(view, group).b_pad;
        return layout;
    }
    layout.rows = 1;
    layout.row_bytes = layout.pitch = bytes;
    if (weights_are_staged(view.plan)) return layout;
    const LinearGroupShape shape = group_shape(view.lane_model, group);
    const WeightTraits& traits = traits_of(linear_format(view.plan));
    layout.rows = static_cast<std::uint64_t>(shape.out);
    layout.row_bytes = code_bytes(traits, shape.in);
    layout.pitch = code_bytes(traits, stored_shape(view, group).cols);
    return layout;
}

}  // namespace

std::int32_t resident_layers(const Job& job) {
    switch (job.model.residency.kind) {
        case Residency::Kind::automatic:
        case Residency::Kind::all:
            return all_layers;
        case Residency::Kind::stream:
            return 0;
        case Residency::Kind::shared:
            return job.model.residency.sharers > 1 ? 0 : all_layers;
        case Residency::Kind::some:
            return job.model.residency.layers;
    }
    return all_layers;
}

std::vector<StagePlan> with_residency(std::vector<StagePlan> stages, const Job& job) {
    const Residency& residency = job.model.residency;
    const bool shared = residency.kind == Residency::Kind::shared && residency.sharers > 1;
    for (StagePlan& stage : stages) {
        stage.owners.clear();
        stage.resident_layers =
            shared ? ceil_div(stage.layer_count, residency.sharers) : resident_layers(job);
    }
    return stages;
}

bool may_stream(const ReplicaPlan& replica) {
    return std::any_of(replica.stages.begin(), replica.stages.end(),
                       [](const StagePlan& stage) { return stage.resident_layers != all_layers; });
}

std::int32_t streamed_layers(const StagePlan& stage) {
    return std::max(0, stage.layer_count - std::min(stage.resident_layers, stage.layer_count));
}

std::int32_t owned_layers(const StagePlan& stage) {
    std::int32_t held = 0;
    for (std::int32_t l = 0; l < stage.layer_count; ++l) held += is_streamed(stage, l) ? 0 : 1;
    return held;
}

bool is_streamed(const StagePlan& stage, std::int32_t layer) {
    if (!stage.owners.empty()) {
        const auto owner = static_cast<std::size_t>(layer) % stage.owners.size();
        return stage.owners[owner] != stage.rank;
    }
    const std::int64_t streamed = streamed_layers(stage);
    const auto before = [&](std::int64_t end) { return end * streamed / stage.layer_count; };
    return streamed > 0 && before(layer + 1) > before(layer);
}

std::int32_t stream_buffers(const StagePlan& stage) {
    return std::min(streamed_layers(stage), most_stream_buffers);
}

StreamedLayer streamed_layer(const ReplicaView& view) {
    StreamedLayer layer;
    for (std::size_t g = 0; g < layer.groups.size(); ++g) {
        std::uint64_t bytes = 0;
        StreamedGroup& group = layer.groups[g];
        group = group_layout(view, static_cast<LinearGroup>(g), bytes);
        group.in_buffer = layer.buffer_bytes;
        group.in_host = layer.host_bytes;
        layer.buffer_bytes += aligned(bytes);
        layer.host_bytes += aligned(group.rows * group.row_bytes);
    }
    return layer;
}

std::uint64_t host_layer_bytes(const StreamedLayer& layer) {
    return round_up(layer.host_bytes, page_bytes);
}

StreamOrder::StreamOrder(std::int32_t buffers) : held_(static_cast<std::size_t>(buffers), -1) {
    LORATRAIN_CHECK(buffers > 0, "no buffer for layers that stream");
}

void StreamOrder::expect(std::vector<std::int32_t> layers) {
    LORATRAIN_CHECK(in_use_ < 0, "a layer that streams is in use");
    expected_ = std::move(layers);
    first_ = 0;
}

void StreamOrder::forget() {
    expect({});
    std::fill(held_.begin(), held_.end(), -1);
}

std::int32_t StreamOrder::buffer_of(std::int32_t layer) const {
    const auto found = std::find(held_.begin(), held_.end(), layer);
    return found == held_.end() ? -1 : static_cast<std::int32_t>(found - held_.begin());
}

bool StreamOrder::expects(std::int32_t layer) const {
    return first_ < expected_.size() && expected_[first_] == layer;
}

std::size_t StreamOrder::next_use(std::int32_t layer) const {
    if (layer < 0) return expected_.size() + 1;  // an empty buffer is the first to be taken
    const auto begin = expected_.begin() + static_cast<std::ptrdiff_t>(first_);
    return static_cast<std::size_t>(std::find(begin, expected_.end(), layer) - expected_.begin());
}

std::optional<StreamOrder::Load> StreamOrder::next_load() {
    std::size_t wanted = first_;
    while (wanted < expected_.size() && buffer_of(expected_[wanted]) >= 0) ++wanted;
    if (wanted == expected_.size()) return std::nullopt;
    std::int32_t last = -1;
    for (std::int32_t b = 0; b < static_cast<std::int32_t>(held_.size()); ++b) {
        if (b == in_use_) continue;
        const auto use_in = [&](std::int32_t buffer) {
            return next_use(held_[static_cast<std::size_t>(buffer)]);
        };
        if (last < 0 || use_in(b) > use_in(last)) last = b;
    }
    if (last < 0 || next_use(held_[static_cast<std::size_t>(last)]) < wanted) return std::nullopt;
    held_[static_cast<std::size_t>(last)] = expected_[wanted];
    return Load{expected_[wanted], last};
}

std::int32_t StreamOrder::use(std::int32_t layer) {
    LORATRAIN_CHECK(expects(layer), "layer ", layer, " is used out of turn");
    in_use_ = buffer_of(layer);
    LORATRAIN_CHECK(in_use_ >= 0, "layer ", layer, " has not been loaded");
    return in_use_;
}

void StreamOrder::done() {
    LORATRAIN_CHECK(in_use_ >= 0, "no layer that streams is in use");
    in_use_ = -1;
    ++first_;
}

namespace {

std::int32_t rank_count(const ReplicaPlan& replica) {
    return replica.tensor * static_cast<std::int32_t>(replica.stages.size());
}

/// -1 where the ranks are on several.
std::int32_t common_host(std::int32_t first_rank, std::int32_t ranks,
                         std::span<const std::int32_t> hosts) {
    const auto own =
        hosts.subspan(static_cast<std::size_t>(first_rank), static_cast<std::size_t>(ranks));
    return std::count(own.begin(), own.end(), own.front()) == ranks ? own.front() : -1;
}

}  // namespace

std::int32_t sharers(const std::vector<ReplicaJob>& deployment, const Cluster& cluster) {
    std::vector<const ReplicaJob*> replicas;
    for (const ReplicaJob& entry : deployment) {
        replicas.insert(replicas.end(), static_cast<std::size_t>(entry.count), &entry);
    }
    std::stable_sort(replicas.begin(), replicas.end(),
                     [](const auto* a, const auto* b) { return a->tensor > b->tensor; });
    std::map<std::pair<const ReplicaJob*, std::int32_t>, std::int32_t> groups;
    std::vector<ReplicaCut> cuts;
    std::int32_t ranks = 0;
    for (const ReplicaJob* replica : replicas) {
        cuts.push_back({replica->tensor, replica->stages});
        ranks += cuts.back().ranks();
    }
    const std::vector<std::int32_t> hosts = hosts_of(cluster);
    if (ranks > std::ssize(hosts)) return 1;
    const std::vector<std::int32_t> first = first_ranks(cuts, hosts);
    std::int32_t least = std::numeric_limits<std::int32_t>::max();
    for (std::size_t r = 0; r < replicas.size(); ++r) {
        const std::int32_t host = common_host(first[r], cuts[r].ranks(), hosts);
        if (host < 0) return 1;
        ++groups[{replicas[r], host}];
    }
    for (const auto& [group, count] : groups) least = std::min(least, count);
    return groups.empty() ? 1 : least;
}

void set_layer_owners(std::vector<ReplicaPlan>& replicas, std::span<const std::int32_t> hosts) {
    using Joined = std::array<bool, linear_group_count>;
    using Key =
        std::tuple<std::int32_t, std::int32_t, std::int32_t, Joined, std::int32_t, std::int32_t>;
    std::map<Key, std::vector<StagePlan*>> groups;
    for (ReplicaPlan& replica : replicas) {
        const std::int32_t first = replica.stages.front().rank;
        const std::int32_t host = common_host(first, rank_count(replica), hosts);
        for (StagePlan& stage : replica.stages) {
            stage.owners.clear();
            stage.resident_layers = all_layers;
            if (host < 0) continue;
            groups[{host, replica.tensor, replica.pad_columns, replica.joined, stage.first_layer,
                    stage.layer_count}]
                .push_back(&stage);
        }
    }
    for (auto& [key, stages] : groups) {
        if (stages.size() == 1) continue;
        std::vector<std::int32_t> ranks;
        for (const StagePlan* stage : stages) ranks.push_back(stage->rank);
        for (StagePlan* stage : stages) {
            stage->owners = ranks;
            stage->resident_layers = owned_layers(*stage);
        }
    }
}

bool has_layer_owners(const Plan& plan) {
    return std::any_of(plan.replicas.begin(), plan.replicas.end(), [](const auto& replica) {
        return std::any_of(replica.stages.begin(), replica.stages.end(),
                           [](const StagePlan& stage) { return !stage.owners.empty(); });
    });
}

StreamedCopies::StreamedCopies(const Plan& plan, std::span<const std::int32_t> host_of)
    : of_rank_(host_of.size()), counts_(host_of.size()) {
    /// Host, lanes, lane, layer of the model.
    std::map<std::tuple<std::int32_t, std::int32_t, std::int32_t, std::int32_t>,
             std::vector<std::pair<std::int32_t, std::int32_t>>>
        users;
    for (std::int32_t rank = 0; rank < static_cast<std::int32_t>(host_of.size()); ++rank) {
        const RankPlace place = place_of(plan, rank);
        const ReplicaPlan& replica = plan.replicas[place.replica];
        const StagePlan& stage = replica.stages[place.stage];
        for (std::int32_t l = 0; l < stage.layer_count; ++l) {
            if (!is_streamed(stage, l)) continue;
            users[{host_of[static_cast<std::size_t>(rank)], replica.tensor, place.lane,
                   stage.first_layer + l}]
                .emplace_back(rank, l);
        }
    }
    for (const auto& [key, ranks] : users) {
        const auto turn = static_cast<std::size_t>(std::get<3>(key)) % ranks.size();
        const std::int32_t owner = ranks[turn].first;
        const Copy copy{owner, counts_[static_cast<std::size_t>(owner)]++};
        for (const auto& [rank, layer] : ranks) {
            of_rank_[static_cast<std::size_t>(rank)].push_back({layer, copy});
        }
    }
}

StreamedCopies::Copy StreamedCopies::of(std::int32_t rank, std::int32_t layer) const {
    const auto& entries = of_rank_[static_cast<std::size_t>(rank)];
    const auto found = std::find_if(entries.begin(), entries.end(),
                                    [&](const Entry& entry) { return entry.layer == layer; });
    LORATRAIN_CHECK(found != entries.end(), "layer ", layer, " of rank ", rank, " does not stream");
    return found->copy;
}

std::int32_t StreamedCopies::copies_on(std::int32_t rank) const {
    return counts_[static_cast<std::size_t>(rank)];
}

std::vector<std::int32_t> StreamedCopies::owners(std::int32_t rank) const {
    std::set<std::int32_t> owners;
    for (const Entry& entry : of_rank_[static_cast<std::size_t>(rank)]) {
        owners.insert(entry.copy.owner);
    }
    return {owners.begin(), owners.end()};
}

void set_host_copies(Plan& plan, std::span<const std::int32_t> hosts) {
    for (MemoryPlan& memory : plan.memory) memory.host = 0;
    if (std::none_of(plan.replicas.begin(), plan.replicas.end(), may_stream)) return;
    const auto ranks = static_cast<std::int32_t>(plan.memory.size());
    const StreamedCopies copies(plan, hosts.first(plan.memory.size()));
    for (std::int32_t rank = 0; rank < ranks; ++rank) {
        const RankPlace place = place_of(plan, rank);
        const ReplicaView view = view_of(plan, plan.replicas[place.replica]);
        MemoryPlan& memory = plan.memory[static_cast<std::size_t>(rank)];
        const StagePlan& stage = view.replica.stages[place.stage];
        if (streamed_layers(stage) == 0 || !stage.owners.empty()) continue;
        memory.host = static_cast<std::uint64_t>(copies.copies_on(rank)) *
                      host_layer_bytes(streamed_layer(view));
    }
}

}  // namespace loratrain
