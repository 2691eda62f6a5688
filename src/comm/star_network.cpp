#include "comm/star_network.h"

#include <ifaddrs.h>
#include <netdb.h>
#include <pthread.h>

#include <utility>  // Boost 1.74's asio uses std::exchange without it

#include <algorithm>
#include <array>
#include <boost/asio.hpp>
#include <chrono>
#include <csignal>
#include <future>
#include <map>
#include <optional>
#include <random>
#include <thread>

#include "base/text.h"
#include "base/wire.h"
#include "comm/collective.h"

namespace loratrain {

namespace {

namespace asio = boost::asio;
using asio::ip::tcp;
using Failure = boost::system::error_code;
using Clock = std::chrono::steady_clock;

constexpr std::size_t longest_line = 256;
constexpr std::chrono::seconds connect_time{5};
constexpr std::chrono::milliseconds farewell_time{500};
constexpr std::chrono::milliseconds time_after_loss{300};
constexpr std::chrono::milliseconds last_words_time{200};

/// IPv4 addresses of this host's network devices, without the loopback device.
std::vector<std::string> own_addresses() {
    std::vector<std::string> addresses;
    ifaddrs* list = nullptr;
    if (getifaddrs(&list) != 0) return addresses;
    for (const ifaddrs* i = list; i != nullptr; i = i->ifa_next) {
        if (i->ifa_addr == nullptr || i->ifa_addr->sa_family != AF_INET) continue;
        std::array<char, NI_MAXHOST> text{};
        if (getnameinfo(i->ifa_addr, sizeof(sockaddr_in), text.data(), text.size(), nullptr, 0,
                        NI_NUMERICHOST) != 0) {
            continue;
        }
        Failure failure;
        const asio::ip::address address = asio::ip::make_address(text.data(), failure);
        if (!failure && !address.is_loopback()) addresses.emplace_back(text.data());
    }
    freeifaddrs(list);
    return addresses;
}

std::string random_word() {
    std::random_device device;
    return cat(device(), "-", device(), "-", device());
}

bool on_one_host(const MpiSession& mpi) {
    return std::all_of(mpi.hosts().begin(), mpi.hosts().end(),
                       [&](const std::string& host) { return host == mpi.hosts().front(); });
}

/// A connected socket and what has been read from it.
struct Connection {
    explicit Connection(tcp::socket connected) : socket(std::move(connected)) {}
    tcp::socket socket;
    std::string read;
};

/// Where rank 0 listens, as it travels over MPI.
struct Meeting {
    std::string word;
    std::uint16_t port = 0;
    std::vector<std::string> addresses;
};

template <class Archive>
void fields(Archive& archive, Meeting& meeting) {
    archive.list(meeting.word, meeting.port, meeting.addresses);
}

}  // namespace

class StarNetwork::Impl {
  public:
    /// The thread takes no signals: those are for the main thread.
    Impl() {
        sigset_t all;
        sigset_t before;
        sigfillset(&all);
        pthread_sigmask(SIG_SETMASK, &all, &before);
        thread_ = std::thread([this] { io_.run(); });
        pthread_sigmask(SIG_SETMASK, &before, nullptr);
    }

    ~Impl() { stop(); }
    Impl(const Impl&) = delete;
    Impl& operator=(const Impl&) = delete;

    /// Rank 0: an empty text when it cannot listen.
    std::string listen(const MpiSession& mpi) {
        const bool local = on_one_host(mpi);
        Meeting meeting{random_word(), 0, {"127.0.0.1"}};
        if (!local) {
            const std::vector<std::string> addresses = own_addresses();
            meeting.addresses.insert(meeting.addresses.end(), addresses.begin(), addresses.end());
        }
        try {
            const asio::ip::address_v4 device =
                local ? asio::ip::address_v4::loopback() : asio::ip::address_v4::any();
            acceptor_.emplace(io_, tcp::endpoint(device, 0));
            meeting.port = acceptor_->local_endpoint().port();
        } catch (const boost::system::system_error&) {
            acceptor_.reset();
            return "";
        }
        word_ = meeting.word;
        asio::post(io_, [this] { accept(); });
        return to_wire(meeting);
    }

    /// Other ranks: tries one address after another.
    bool connect(const MpiSession& mpi, const std::string& text) {
        if (text.empty()) return false;
        meeting_ = from_wire<Meeting>(text, "where rank 0 listens");
        const bool same_host = mpi.host() == mpi.hosts().front();
        if (!same_host) meeting_.addresses.erase(meeting_.addresses.begin());
        word_ = meeting_.word;
        rank_ = mpi.rank();
        std::future<bool> done = connected_.get_future();
        asio::post(io_, [this] { try_address(0); });
        return done.get();
    }

    void start(const std::vector<int>& ranks, StarEvents events, double interval,
               std::string farewell) {
        asio::post(io_, [this, ranks, interval, events = std::move(events),
                         farewell = std::move(farewell)]() mutable {
            events_ = std::move(events);
            farewell_ = std::move(farewell);
            interval_ = std::chrono::duration_cast<Clock::duration>(
                std::chrono::duration<double>(interval));
            acceptor_.reset();
            std::erase_if(peers_, [&](const auto& peer) {
                return peer.first != 0 &&
                       std::find(ranks.begin(), ranks.end(), peer.first) == ranks.end();
            });
            for (auto& [rank, peer] : peers_) read(rank, peer);
            last_tick_ = Clock::now();
            tick();
        });
    }

    void send(const std::string& line) {
        for (auto& [rank, peer] : peers_) send_to(*peer, line);
    }

    void last_words(const std::string& line) {
        const auto sent = std::make_shared<std::promise<void>>();
        asio::post(io_, [this, line, sent] {
            send(line);
            sent->set_value();
        });
        sent->get_future().wait_for(last_words_time);
    }

  private:
    using Peer = std::shared_ptr<Connection>;

    /// Closing a socket that holds unread lines would reset the connection, and what the farewell
    /// waits behind would be lost: each side reads until the other has closed too.
    void stop() {
        asio::post(io_, [this] {
            if (!farewell_.empty()) send(farewell_);
            leaving_ = true;
            Failure ignored;
            for (auto& [rank, peer] : peers_) {
                peer->socket.shutdown(tcp::socket::shutdown_send, ignored);
            }
            if (peers_.empty() || farewell_.empty()) return io_.stop();
            timer_.expires_after(farewell_time);
            timer_.async_wait([this](const Failure& cancelled) {
                if (!cancelled) io_.stop();
            });
        });
        thread_.join();
    }

    static void send_to(Connection& peer, const std::string& line) {
        Failure dropped;
        peer.socket.non_blocking(true, dropped);
        peer.socket.send(asio::buffer(line + '\n'), 0, dropped);
    }

    /// Calls use(line) once a whole line is there, use("") when the connection failed.
    template <class Use>
    void read_line(const Peer& peer, Use use) {
        asio::async_read_until(peer->socket, asio::dynamic_buffer(peer->read, longest_line), '\n',
                               [peer, use](const Failure& failure, std::size_t bytes) {
                                   if (failure) return use(std::string());
                                   const std::string line = peer->read.substr(0, bytes - 1);
                                   peer->read.erase(0, bytes);
                                   use(line);
                               });
    }

    std::string greeting(int rank) const { return cat("loratrain ", word_, " ", rank); }

    void accept() {
        if (!acceptor_) return;
        acceptor_->async_accept([this](const Failure& failure, tcp::socket socket) {
            if (failure == asio::error::operation_aborted) return;
            if (!failure) greet(std::make_shared<Connection>(std::move(socket)));
            accept();
        });
    }

    void greet(const Peer& peer) {
        read_line(peer, [this, peer](const std::string& line) {
            const std::size_t space = line.rfind(' ');
            if (space == std::string::npos) return;
            const int rank = std::atoi(line.c_str() + space);
            if (rank < 1 || line != greeting(rank)) return;
            peers_[rank] = peer;
            send_to(*peer, greeting(0));
        });
    }

    void try_address(std::size_t number) {
        if (number == meeting_.addresses.size()) return connected_.set_value(false);
        const auto peer = std::make_shared<Connection>(tcp::socket(io_));
        const auto deadline = std::make_shared<asio::steady_timer>(io_, connect_time);
        deadline->async_wait([this, peer](const Failure& cancelled) {
            Failure ignored;
            if (!cancelled && !peers_.contains(0)) peer->socket.close(ignored);
        });
        const auto answered = [this, number, peer, deadline](const std::string& line) {
            deadline->cancel();  // unless it is due too: then who comes first decides
            if (line != greeting(0) || !peer->socket.is_open()) return try_address(number + 1);
            peers_[0] = peer;
            connected_.set_value(true);
        };
        Failure unusable;
        const auto address = asio::ip::make_address(meeting_.addresses[number], unusable);
        if (unusable) return answered("");
        peer->socket.async_connect({address, meeting_.port},
                                   [this, peer, answered](const Failure& failure) {
                                       if (failure) return answered("");
                                       send_to(*peer, greeting(rank_));
                                       read_line(peer, answered);
                                   });
    }

    void read(int rank, const Peer& peer) {
        read_line(peer, [this, rank, peer](const std::string& line) {
            if (line.empty()) return lose(rank);
            if (!leaving_) events_.received(rank, line);
            read(rank, peer);
        });
    }

    void lose(int rank) {
        peers_.erase(rank);
        if (leaving_) {
            if (peers_.empty()) io_.stop();
            return;
        }
        events_.lost(rank);
        if (timer_.expiry() > Clock::now() + time_after_loss) tick_after(time_after_loss);
    }

    void tick() {
        if (leaving_) return;
        const Clock::time_point now = Clock::now();
        events_.ticked(std::chrono::duration<double>(now - last_tick_).count());
        last_tick_ = now;
        tick_after(interval_);
    }

    void tick_after(Clock::duration pause) {
        timer_.expires_after(pause);
        timer_.async_wait([this](const Failure& cancelled) {
            if (!cancelled) tick();
        });
    }

    asio::io_context io_{1};
    asio::executor_work_guard<asio::io_context::executor_type> work_ = asio::make_work_guard(io_);
    asio::steady_timer timer_{io_};
    std::optional<tcp::acceptor> acceptor_;
    std::map<int, Peer> peers_;
    std::string word_;
    int rank_ = 0;
    Meeting meeting_;
    std::promise<bool> connected_;
    StarEvents events_;
    std::string farewell_;
    bool leaving_ = false;
    Clock::duration interval_{};
    Clock::time_point last_tick_;
    std::thread thread_;
};

StarNetwork::StarNetwork(const MpiSession& mpi) : impl_(new Impl) {
    const std::string meeting =
        broadcast_text(mpi, mpi.is_root() ? impl_->listen(mpi) : std::string());
    const bool mine = mpi.is_root() || impl_->connect(mpi, meeting);
    const std::vector<std::uint64_t> all = gather_numbers(mpi, std::uint64_t{mine});
    for (int rank = 1; rank < mpi.size(); ++rank) {
        if (all[static_cast<std::size_t>(rank)] != 0) connected_.push_back(rank);
    }
}

StarNetwork::~StarNetwork() = default;

void StarNetwork::start(StarEvents events, double interval, std::string farewell) {
    impl_->start(connected_, std::move(events), interval, std::move(farewell));
}

void StarNetwork::send(const std::string& line) {
    impl_->send(line);
}

void StarNetwork::last_words(const std::string& line) {
    impl_->last_words(line);
}

}  // namespace loratrain
