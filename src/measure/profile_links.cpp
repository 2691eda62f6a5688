#include "measure/profile_links.h"

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <limits>
#include <set>
#include <utility>

#include "base/system.h"
#include "base/text.h"
#include "comm/collective.h"
#include "measure/median.h"
#include "plan/cost_fields.h"
#include "plan/memory/memory_model.h"
#include "plan/place.h"
#include "plan/replica_view.h"
#include "plan/text/describe_prediction.h"

namespace loratrain {

namespace {

constexpr std::size_t small = 64;
constexpr int small_messages = 20;
constexpr int large_messages = 4;
constexpr std::size_t least_large = std::size_t{64} << 10U;
constexpr std::size_t most_large = std::size_t{4} << 20U;
constexpr double compared_bytes = 1 << 20U;
constexpr double far_slower = 3.0;
constexpr std::size_t most_named = 8;

/// Sends to and fro between this rank and another.
class ToAndFro {
  public:
    ToAndFro(int rank, const RankPair& pair, Communicator& communicator, Backend& backend,
             std::size_t bytes)
        : first_(rank == pair.first),
          other_(first_ ? pair.second : pair.first),
          communicator_(communicator),
          backend_(backend),
          buffer_(backend.allocate(bytes, "profile of messages")) {}

    /// Seconds of one way, in the mean of `count` after a first that is not counted.
    double mean(std::size_t bytes, int count) {
        once(bytes);
        backend_.synchronize();
        const auto start = Clock::now();
        for (int i = 0; i < count; ++i) once(bytes);
        backend_.synchronize();
        return seconds_since(start) / (2.0 * count);
    }

    /// The quickest.
    double least(std::size_t bytes, int count) {
        double seconds = std::numeric_limits<double>::max();
        for (int i = 0; i <= count; ++i) {
            const auto start = Clock::now();
            once(bytes);
            backend_.synchronize();
            if (i > 0) seconds = std::min(seconds, seconds_since(start) / 2.0);
        }
        return seconds;
    }

  private:
    using Clock = std::chrono::steady_clock;

    /// A channel goes one way.
    void once(std::size_t bytes) {
        for (const Channel channel : {Channel::forward, Channel::backward}) {
            const bool sends = first_ == (channel == Channel::forward);
            const auto transfer =
                sends ? communicator_.send(buffer_.data(), bytes, other_, channel)
                      : communicator_.receive(buffer_.data(), bytes, other_, channel);
            transfer->wait();
        }
    }

    bool first_;
    int other_;
    Communicator& communicator_;
    Backend& backend_;
    Buffer buffer_;
};

const std::string& host_of(const MpiSession& mpi, int rank) {
    return mpi.hosts()[static_cast<std::size_t>(rank)];
}

bool is_in(const RankPair& pair, int rank) {
    return rank == pair.first || rank == pair.second;
}

LinkCost cost_from(double of_small, double of_large, std::size_t bytes) {
    return {of_small, std::max(0.0, of_large - of_small) / static_cast<double>(bytes)};
}

}  // namespace

std::optional<LinkCost> profile_messages(const Plan& plan, const MpiSession& mpi,
                                         Communicator& communicator, Backend& backend) {
    const ReplicaView view = view_of(plan, plan.replicas.front());
    const bool has_pipeline = view.replica.stages.size() > 1 && view.replica.tensor == 1;
    if (!has_pipeline || backend.native_stream() != nullptr) return std::nullopt;
    const std::vector<RankPair> neighbours = neighbours_in(plan);
    const auto pair = std::find_if(neighbours.begin(), neighbours.end(), [&](const RankPair& of) {
        return host_of(mpi, of.first) == host_of(mpi, of.second);
    });
    if (pair == neighbours.end()) return std::nullopt;
    LinkCost own;
    if (is_in(*pair, mpi.rank())) {
        const std::size_t large = boundary_bytes(view);
        ToAndFro link(mpi.rank(), *pair, communicator, backend, large);
        const double of_small = link.mean(small, small_messages);
        own = cost_from(of_small, link.mean(large, large_messages), large);
    }
    return broadcast(mpi, own, pair->first);
}

std::vector<RankPair> pairs_between_hosts(const Plan& plan, std::span<const std::string> hosts) {
    const auto host = [&](int rank) { return hosts[static_cast<std::size_t>(rank)]; };
    std::vector<RankPair> pairs;
    std::set<std::pair<std::string, std::string>> met;
    const auto add = [&](const RankPair& pair) {
        const auto [least, most] = std::minmax({host(pair.first), host(pair.second)});
        if (least != most && met.emplace(least, most).second) pairs.push_back(pair);
    };
    for (const RankPair& pair : neighbours_in(plan)) add(pair);
    if (plan.replicas.size() == 1) return pairs;
    std::set<std::string> seen;
    int last = -1;
    for (int rank = 0; rank < static_cast<int>(hosts.size()); ++rank) {
        if (!seen.insert(host(rank)).second) continue;
        if (last >= 0) add({last, rank});
        last = rank;
    }
    return pairs;
}

std::vector<LinkBetweenHosts> profile_links(const MpiSession& mpi, std::span<const RankPair> pairs,
                                            std::size_t bytes, Communicator& communicator,
                                            Backend& backend) {
    std::vector<LinkCost> own(pairs.size());
    for (std::size_t i = 0; i < pairs.size(); ++i) {
        if (is_in(pairs[i], mpi.rank())) {
            ToAndFro link(mpi.rank(), pairs[i], communicator, backend, std::max(bytes, small));
            const double of_small = link.least(small, small_messages);
            own[i] = cost_from(of_small, link.least(bytes, large_messages), bytes);
        }
        quiet_barrier(mpi);
    }
    const auto of_ranks = gather(mpi, own);
    std::vector<LinkBetweenHosts> links;
    for (std::size_t i = 0; i < pairs.size(); ++i) {
        const auto [first, second] = pairs[i];
        const LinkCost cost = of_ranks[static_cast<std::size_t>(first)].at(i);
        links.push_back({host_of(mpi, first), host_of(mpi, second), cost});
    }
    return links;
}

std::vector<LinkBetweenHosts> profile_links(const MpiSession& mpi, const Plan& plan,
                                            Communicator& communicator, Backend& backend) {
    const std::vector<RankPair> neighbours = neighbours_in(plan);
    std::vector<RankPair> joined;
    std::vector<RankPair> others;
    for (const RankPair& pair : pairs_between_hosts(plan, mpi.hosts())) {
        const bool are = std::find(neighbours.begin(), neighbours.end(), pair) != neighbours.end();
        (are ? joined : others).push_back(pair);
    }
    const std::size_t bytes =
        std::clamp(boundary_bytes(view_of(plan, plan.replicas.front())), least_large, most_large);
    std::vector<LinkBetweenHosts> links = profile_links(mpi, joined, bytes, communicator, backend);
    if (others.empty()) return links;
    const auto between = make_communicator(mpi, others, 0, backend);
    for (LinkBetweenHosts& link : profile_links(mpi, others, bytes, *between, backend)) {
        links.push_back(std::move(link));
    }
    return links;
}

LinkCost usual_cost(std::span<const LinkBetweenHosts> links) {
    std::vector<double> fixed;
    std::vector<double> per_byte;
    for (const LinkBetweenHosts& link : links) {
        fixed.push_back(link.cost.fixed);
        per_byte.push_back(link.cost.per_byte);
    }
    return {median(std::move(fixed)), median(std::move(per_byte))};
}

std::string links_text(std::span<const LinkBetweenHosts> links) {
    std::vector<LinkBetweenHosts> named(links.begin(), links.end());
    if (named.size() > most_named) {
        std::stable_sort(named.begin(), named.end(), [](const auto& a, const auto& b) {
            return a.cost.seconds(compared_bytes) > b.cost.seconds(compared_bytes);
        });
        named.resize(most_named);
    }
    std::vector<std::string> texts;
    for (const LinkBetweenHosts& link : named) {
        texts.push_back(cat(link.from, " - ", link.to, " ", to_text(link.cost)));
    }
    const std::string text = join(texts, "; ");
    if (named.size() == links.size()) return text;
    return cat(text, "; ", links.size() - named.size(), " more are faster");
}

std::vector<std::string> slow_links(std::span<const LinkBetweenHosts> links) {
    std::vector<std::string> texts;
    for (std::size_t i = 0; i < links.size() && links.size() > 1; ++i) {
        std::vector<LinkBetweenHosts> others(links.begin(), links.end());
        others.erase(others.begin() + static_cast<std::ptrdiff_t>(i));
        const LinkCost usual = usual_cost(others);
        const LinkCost& own = links[i].cost;
        const double times = own.seconds(compared_bytes) / usual.seconds(compared_bytes);
        if (!(times > far_slower)) continue;
        texts.push_back(cat(
            "the link between ", links[i].from, " and ", links[i].to, " is slow: ", to_text(own),
            ", where the other links between hosts have ", to_text(usual), " in the median"));
    }
    return texts;
}

}  // namespace loratrain
