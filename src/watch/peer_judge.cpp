#include "watch/peer_judge.h"

#include <algorithm>
#include <map>
#include <sstream>
#include <utility>

#include "base/text.h"

namespace loratrain {

namespace {

constexpr double longest_pauses = 5.0;
constexpr const char* beat_word = "beat";

bool works(const Beat& beat) {
    return beat.state.on_device && !beat.state.waiting;
}

std::string seconds_text(double seconds) {
    return cat(format_fixed(seconds, 0), " s");
}

}  // namespace

std::string to_line(const Beat& beat) {
    const activity::State& s = beat.state;
    return cat(beat_word, " ", static_cast<int>(s.task), " ", s.on_device ? 1 : 0, " ",
               s.waiting ? 1 : 0, " ", s.number, " ", beat.progress);
}

std::optional<Beat> beat_from_line(std::string_view line) {
    std::istringstream words{std::string(line)};
    std::string word;
    int task = 0;
    Beat beat;
    words >> word >> task >> beat.state.on_device >> beat.state.waiting >> beat.state.number >>
        beat.progress;
    if (!words || word != beat_word) return std::nullopt;
    beat.state.task = static_cast<activity::Task>(task);
    return beat;
}

PeerJudge::PeerJudge(const std::vector<int>& ranks, const PeerLimits& limits) : limits_(limits) {
    for (const int rank : ranks) peers_.push_back({rank, {}, 0.0, 0.0, 0.0, false, false});
}

PeerJudge::Peer* PeerJudge::find(int rank) {
    const auto found = std::find_if(peers_.begin(), peers_.end(),
                                    [rank](const Peer& peer) { return peer.rank == rank; });
    return found == peers_.end() ? nullptr : &*found;
}

void PeerJudge::heard(int rank, const Beat& beat) {
    Peer* peer = find(rank);
    if (peer == nullptr) return;
    if (beat.progress != peer->last.progress) {
        if (works(peer->last)) peer->longest = std::max(peer->longest, peer->paused);
        peer->paused = 0.0;
    }
    peer->silent = 0.0;
    peer->last = beat;
}

void PeerJudge::lost(int rank) {
    Peer* peer = find(rank);
    if (peer == nullptr) return;
    peer->closed = true;
    peer->silent = 0.0;
}

void PeerJudge::failed(int rank) {
    if (Peer* peer = find(rank)) peer->failed = true;
}

void PeerJudge::left(int rank) {
    std::erase_if(peers_, [rank](const Peer& peer) { return peer.rank == rank; });
    all_here_ = false;
}

std::optional<PeerFault> PeerJudge::pass(double seconds, double longest) {
    const double step = std::min(seconds, longest);
    for (Peer& peer : peers_) {
        peer.silent += step;
        peer.paused += step;
    }
    for (const Peer& peer : peers_) {
        if (std::optional<PeerFault> fault = fault_of(peer)) return fault;
    }
    return deadlock();
}

std::vector<int> PeerJudge::silent_ranks(double seconds) const {
    std::vector<int> ranks;
    for (const Peer& peer : peers_) {
        if (peer.silent >= seconds) ranks.push_back(peer.rank);
    }
    return ranks;
}

std::optional<PeerFault> PeerJudge::fault_of(const Peer& peer) const {
    const std::string last = to_string(peer.last.state);
    if (peer.closed) {
        if (peer.silent < (peer.failed ? limits_.failed : limits_.closed)) return std::nullopt;
        const char* how = peer.failed ? "ended with an error" : "ended without a word";
        return PeerFault{peer.rank, cat(how, ", last seen in ", last)};
    }
    if (limits_.silence > 0 && peer.silent >= limits_.silence) {
        return PeerFault{peer.rank, cat("no heartbeat for ", seconds_text(peer.silent),
                                        ", last seen in ", last)};
    }
    const double limit = std::max(limits_.device, longest_pauses * peer.longest);
    if (limits_.device > 0 && works(peer.last) && peer.paused >= limit) {
        return PeerFault{peer.rank, cat("no progress for ", seconds_text(peer.paused), " in ", last,
                                        ": its GPU or a link to another GPU hangs")};
    }
    return std::nullopt;
}

bool PeerJudge::is_stuck(const std::vector<Peer>& peers) const {
    return std::all_of(peers.begin(), peers.end(), [this](const Peer& peer) {
        return peer.last.state.waiting && !peer.closed && peer.paused >= limits_.deadlock;
    });
}

/// Those whose ranks train; before and after that workers wait for each other.
std::vector<std::vector<PeerJudge::Peer>> PeerJudge::workers() const {
    std::map<int, std::vector<Peer>> groups;
    for (const Peer& peer : peers_) {
        if (limits_.worker_ranks > 0) groups[peer.rank / limits_.worker_ranks].push_back(peer);
    }
    std::vector<std::vector<Peer>> training;
    for (auto& [worker, peers] : groups) {
        const bool together = std::any_of(peers.begin(), peers.end(), [](const Peer& peer) {
            const activity::Task task = peer.last.state.task;
            return task == activity::Task::set_up || task == activity::Task::finish;
        });
        if (!together) training.push_back(std::move(peers));
    }
    return training;
}

std::optional<PeerFault> PeerJudge::deadlock() const {
    if (limits_.deadlock <= 0 || !all_here_ || peers_.empty()) return std::nullopt;
    std::vector<std::vector<Peer>> groups = workers();
    groups.push_back(peers_);
    const auto stuck = std::find_if(groups.begin(), groups.end(),
                                    [this](const auto& peers) { return is_stuck(peers); });
    if (stuck == groups.end()) return std::nullopt;
    const auto first =
        std::max_element(stuck->begin(), stuck->end(),
                         [](const Peer& a, const Peer& b) { return a.paused < b.paused; });
    return PeerFault{first->rank, cat("waits in ", to_string(first->last.state), " for ",
                                      seconds_text(first->paused), ", and so does every other rank",
                                      stuck->size() < peers_.size() ? " of its worker" : "",
                                      ": a message was lost")};
}

}  // namespace loratrain
