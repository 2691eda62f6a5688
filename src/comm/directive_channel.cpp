#include "comm/directive_channel.h"

#include <algorithm>
#include <chrono>
#include <climits>
#include <thread>
#include <utility>

#include "base/activity.h"
#include "base/error.h"
#include "comm/mpi_check.h"
#include "comm/tags.h"
#include "comm/while_waiting.h"

namespace loratrain {

namespace {

constexpr int root = 0;
constexpr std::chrono::microseconds poll_interval{50};

bool all_done(std::vector<MPI_Request>& requests) {
    int done = 0;
    MPI_CHECK(MPI_Testall(static_cast<int>(requests.size()), requests.data(), &done,
                          MPI_STATUSES_IGNORE));
    return done != 0;
}

std::optional<std::string> arrived_text(MPI_Comm comm, int source, int tag) {
    int arrived = 0;
    MPI_Message message = MPI_MESSAGE_NULL;
    MPI_Status status;
    MPI_CHECK(MPI_Improbe(source, tag, comm, &arrived, &message, &status));
    if (arrived == 0) return std::nullopt;
    int size = 0;
    MPI_CHECK(MPI_Get_count(&status, MPI_CHAR, &size));
    std::string text(static_cast<std::size_t>(size), '\0');
    MPI_CHECK(MPI_Mrecv(text.data(), size, MPI_CHAR, &message, MPI_STATUS_IGNORE));
    return text;
}

}  // namespace

DirectiveChannel::DirectiveChannel(const MpiSession& mpi) : mpi_(mpi) {
    MPI_CHECK(MPI_Comm_dup(mpi.comm(), &comm_));
}

DirectiveChannel::~DirectiveChannel() {
    MPI_Comm_free(&comm_);
}

void DirectiveChannel::post(std::string text) {
    LORATRAIN_CHECK(text.size() <= INT_MAX, "a directive of ", text.size(), " bytes");
    progress();
    Posted& posted = posted_.emplace_back();
    posted.text = std::make_unique<std::string>(std::move(text));
    for (int rank = 1; rank < mpi_.size(); ++rank) {
        posted.requests.push_back(MPI_REQUEST_NULL);
        MPI_CHECK(MPI_Isend(posted.text->data(), static_cast<int>(posted.text->size()), MPI_CHAR,
                            rank, tags::directive, comm_, &posted.requests.back()));
    }
}

void DirectiveChannel::progress() {
    while (!posted_.empty() && all_done(posted_.front().requests)) posted_.pop_front();
}

void DirectiveChannel::finish() {
    const activity::Waiting waiting;
    for (Posted& posted : posted_) {
        MPI_CHECK(MPI_Waitall(static_cast<int>(posted.requests.size()), posted.requests.data(),
                              MPI_STATUSES_IGNORE));
    }
    posted_.clear();
}

std::string DirectiveChannel::next(const std::function<void()>& meanwhile) {
    const activity::Waiting waiting;
    for (;;) {
        std::optional<std::string> text = arrived_text(comm_, root, tags::directive);
        if (text) return *std::move(text);
        meanwhile();
        work_while_waiting();
        std::this_thread::sleep_for(poll_interval);
    }
}

std::optional<std::string> DirectiveChannel::arrived() {
    return arrived_text(comm_, root, tags::directive);
}

void DirectiveChannel::tell(std::string text) {
    int done = 1;
    while (!telling_.empty() && done != 0) {
        MPI_CHECK(MPI_Test(&telling_.front().second, &done, MPI_STATUS_IGNORE));
        if (done != 0) telling_.pop_front();
    }
    telling_.emplace_back(std::make_unique<std::string>(std::move(text)), MPI_REQUEST_NULL);
    auto& [kept, request] = telling_.back();
    MPI_CHECK(MPI_Isend(kept->data(), static_cast<int>(kept->size()), MPI_CHAR, root,
                        tags::directive_told, comm_, &request));
}

std::optional<std::string> DirectiveChannel::told() {
    return arrived_text(comm_, MPI_ANY_SOURCE, tags::directive_told);
}

void DirectiveChannel::report(int number) {
    reports_.emplace_back(std::make_unique<int>(number), MPI_REQUEST_NULL);
    auto& [value, request] = reports_.back();
    MPI_CHECK(MPI_Isend(value.get(), 1, MPI_INT, root, tags::directive_report, comm_, &request));
}

int DirectiveChannel::reported() {
    for (;;) {
        int arrived = 0;
        MPI_Status status;
        MPI_CHECK(MPI_Iprobe(MPI_ANY_SOURCE, tags::directive_report, comm_, &arrived, &status));
        if (arrived == 0) return reported_;
        int number = 0;
        MPI_CHECK(MPI_Recv(&number, 1, MPI_INT, status.MPI_SOURCE, tags::directive_report, comm_,
                           MPI_STATUS_IGNORE));
        reported_ = std::max(reported_, number);
    }
}

}  // namespace loratrain
