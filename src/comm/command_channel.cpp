#include "comm/command_channel.h"

#include <algorithm>
#include <chrono>
#include <climits>
#include <thread>
#include <utility>

#include "base/activity.h"
#include "base/error.h"
#include "comm/tags.h"
#include "comm/waiting.h"

namespace loratrain {

namespace {

constexpr int root = 0;
constexpr std::chrono::microseconds poll_interval{50};

/// A message that has begun to arrive, and memory for its text.
struct Begun {
    MPI_Message message = MPI_MESSAGE_NULL;
    std::string text;
};

std::optional<Begun> begun_text(MPI_Comm comm, int source, int tag) {
    Begun begun;
    int arrived = 0;
    MPI_Status status;
    MPI_CHECK(MPI_Improbe(source, tag, comm, &arrived, &begun.message, &status));
    if (arrived == 0) return std::nullopt;
    int size = 0;
    MPI_CHECK(MPI_Get_count(&status, MPI_CHAR, &size));
    begun.text.resize(static_cast<std::size_t>(size));
    return begun;
}

}  // namespace

CommandChannel::CommandChannel(const MpiSession& mpi) : mpi_(mpi) {
    MPI_CHECK(MPI_Comm_dup(mpi.comm(), &comm_));
}

CommandChannel::~CommandChannel() {
    for (Arriving& arriving : arriving_) MPI_Wait(&arriving.request, MPI_STATUS_IGNORE);
    MPI_Comm_free(&comm_);
}

std::int64_t CommandChannel::post(std::string text) {
    LORATRAIN_CHECK(text.size() <= INT_MAX, "a command of ", text.size(), " bytes");
    progress();
    Posted& posted = posted_.emplace_back();
    posted.number = ++newest_;
    posted.text = std::make_unique<std::string>(std::move(text));
    for (int rank = 1; rank < mpi_.size(); ++rank) {
        posted.requests.push_back(MPI_REQUEST_NULL);
        MPI_CHECK(MPI_Isend(posted.text->data(), static_cast<int>(posted.text->size()), MPI_CHAR,
                            rank, tags::command, comm_, &posted.requests.back()));
    }
    return newest_;
}

void CommandChannel::progress() {
    while (!posted_.empty() && are_done(posted_.front().requests)) posted_.pop_front();
}

bool CommandChannel::has_reached(int rank, std::int64_t number) {
    for (Posted& posted : posted_) {
        if (posted.number > number) break;
        if (!are_done({&posted.requests[static_cast<std::size_t>(rank - 1)], 1})) return false;
    }
    return true;
}

void CommandChannel::finish() {
    const activity::Waiting waiting;
    for (Posted& posted : posted_) {
        MPI_CHECK(MPI_Waitall(static_cast<int>(posted.requests.size()), posted.requests.data(),
                              MPI_STATUSES_IGNORE));
    }
    posted_.clear();
}

std::string CommandChannel::next(const std::function<void()>& meanwhile) {
    const activity::Waiting waiting;
    for (;;) {
        if (std::optional<std::string> text = arrived()) return *std::move(text);
        meanwhile();
        work_while_waiting();
        std::this_thread::sleep_for(poll_interval);
    }
}

std::optional<std::string> CommandChannel::arrived() {
    return next_of(root, tags::command);
}

void CommandChannel::send_report(std::string text) {
    while (!reporting_.empty() && are_done({&reporting_.front().second, 1})) reporting_.pop_front();
    reporting_.emplace_back(std::make_unique<std::string>(std::move(text)), MPI_REQUEST_NULL);
    auto& [kept, request] = reporting_.back();
    MPI_CHECK(MPI_Isend(kept->data(), static_cast<int>(kept->size()), MPI_CHAR, root,
                        tags::command_report_text, comm_, &request));
}

std::optional<std::string> CommandChannel::next_report() {
    return next_of(MPI_ANY_SOURCE, tags::command_report_text);
}

std::optional<std::string> CommandChannel::next_of(int source, int tag) {
    while (auto begun = begun_text(comm_, source, tag)) {
        Arriving& arriving = arriving_.emplace_back();
        arriving.text = std::make_unique<std::string>(std::move(begun->text));
        MPI_CHECK(MPI_Imrecv(arriving.text->data(), static_cast<int>(arriving.text->size()),
                             MPI_CHAR, &begun->message, &arriving.request));
    }
    if (arriving_.empty() || !are_done({&arriving_.front().request, 1})) return std::nullopt;
    std::string text = std::move(*arriving_.front().text);
    arriving_.pop_front();
    return text;
}

void CommandChannel::report(int number) {
    reports_.emplace_back(std::make_unique<int>(number), MPI_REQUEST_NULL);
    auto& [value, request] = reports_.back();
    MPI_CHECK(MPI_Isend(value.get(), 1, MPI_INT, root, tags::command_report, comm_, &request));
}

int CommandChannel::reported() {
    for (;;) {
        int arrived = 0;
        MPI_Status status;
        MPI_CHECK(MPI_Iprobe(MPI_ANY_SOURCE, tags::command_report, comm_, &arrived, &status));
        if (arrived == 0) return reported_;
        int number = 0;
        MPI_CHECK(MPI_Recv(&number, 1, MPI_INT, status.MPI_SOURCE, tags::command_report, comm_,
                           MPI_STATUS_IGNORE));
        reported_ = std::max(reported_, number);
    }
}

}  // namespace loratrain
