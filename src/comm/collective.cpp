#include "comm/collective.h"

#include <algorithm>
#include <charconv>
#include <chrono>
#include <climits>
#include <exception>
#include <set>

#include "base/activity.h"
#include "base/error.h"
#include "base/log.h"
#include "comm/waiting.h"

namespace loratrain {

namespace {

constexpr std::size_t block = 1U << 28U;

enum class Outcome : std::uint8_t { good, bad_input, failed };

struct LocalResult {
    Outcome outcome = Outcome::good;
    std::vector<Problem> problems;
};

LocalResult run_locally(const std::function<void()>& work) {
    LocalResult result;
    try {
        clearly(work);
    } catch (const InputError& error) {
        result = {Outcome::bad_input, error.problems()};
    } catch (const std::exception& error) {
        result = {Outcome::failed, {{"", error.what(), ""}}};
    }
    return result;
}

/// With their lengths: a text may hold any character.
std::string encode(const Problem& problem) {
    std::string text;
    for (const std::string& field : {problem.where, problem.what, problem.hint}) {
        text += cat(field.size(), " ", field);
    }
    return text;
}

std::string encode(const std::vector<Problem>& problems) {
    std::string text;
    for (const Problem& problem : problems) text += encode(problem);
    return text;
}

std::vector<Problem> decode(const std::string& text) {
    std::vector<Problem> problems;
    std::size_t at = 0;
    const auto field = [&] {
        std::size_t length = 0;
        const char* end = text.data() + text.size();
        const char* begin = std::from_chars(text.data() + at, end, length).ptr + 1;
        at = static_cast<std::size_t>(begin - text.data()) + length;
        return std::string(begin, length);
    };
    while (at < text.size()) problems.push_back({field(), field(), field()});
    return problems;
}

template <class Number>
std::vector<Number> all_gather(const MpiSession& mpi, Number value, MPI_Datatype type) {
    const activity::Waiting waiting;
    std::vector<Number> values(static_cast<std::size_t>(mpi.size()));
    MPI_CHECK(MPI_Allgather(&value, 1, type, values.data(), 1, type, mpi.comm()));
    return values;
}

}  // namespace

void agree(const MpiSession& mpi, const std::function<void()>& work) {
    const LocalResult local = run_locally(work);
    const std::vector<std::uint64_t> outcomes =
        gather_numbers(mpi, static_cast<std::uint64_t>(local.outcome));
    const auto worst = static_cast<Outcome>(*std::max_element(outcomes.begin(), outcomes.end()));
    if (worst == Outcome::good) return;
    std::vector<Problem> all;
    std::set<std::string> known;
    for (int rank = 0; rank < mpi.size(); ++rank) {
        if (outcomes[static_cast<std::size_t>(rank)] != static_cast<std::uint64_t>(worst)) continue;
        for (Problem& problem : decode(broadcast_text(mpi, encode(local.problems), rank))) {
            if (known.insert(encode(problem)).second) all.push_back(std::move(problem));
        }
    }
    if (worst == Outcome::bad_input) throw InputError(all);
    throw Error(to_string(all.front()));
}

void together(const MpiSession& mpi, const char* what, const std::function<void()>& work) {
    try {
        work();
    } catch (const InputError&) {
        throw;
    } catch (const std::exception& error) {
        log::error(cat("on host ", mpi.host(), ", ", what, ": ", error.what()));
        MpiSession::abort(static_cast<int>(ExitCode::error));
    }
}

std::string broadcast_text(const MpiSession& mpi, const std::string& text, int root) {
    const activity::Waiting waiting;
    std::uint64_t size = text.size();
    MPI_CHECK(MPI_Bcast(&size, 1, MPI_UINT64_T, root, mpi.comm()));
    std::string result = mpi.rank() == root ? text : std::string(size, '\0');
    for (std::size_t at = 0; at < size; at += block) {
        const int count = static_cast<int>(std::min<std::size_t>(block, size - at));
        MPI_CHECK(MPI_Bcast(result.data() + at, count, MPI_CHAR, root, mpi.comm()));
    }
    return result;
}

bool any_rank(const MpiSession& mpi, bool value) {
    const activity::Waiting waiting;
    int mine = value ? 1 : 0;
    int any = 0;
    MPI_CHECK(MPI_Allreduce(&mine, &any, 1, MPI_INT, MPI_MAX, mpi.comm()));
    return any != 0;
}

std::vector<std::uint64_t> gather_numbers(const MpiSession& mpi, std::uint64_t value) {
    return all_gather(mpi, value, MPI_UINT64_T);
}

std::vector<double> gather_numbers(const MpiSession& mpi, double value) {
    return all_gather(mpi, value, MPI_DOUBLE);
}

std::vector<std::string> gather_texts(const MpiSession& mpi, const std::string& text) {
    std::vector<std::string> texts;
    texts.reserve(static_cast<std::size_t>(mpi.size()));
    for (int rank = 0; rank < mpi.size(); ++rank) texts.push_back(broadcast_text(mpi, text, rank));
    return texts;
}

std::string shared_refusal(const MpiSession& mpi, const std::function<void()>& work) {
    std::string own;
    try {
        work();
    } catch (const std::exception& error) {
        own = error.what();
    }
    const std::vector<std::string> texts = gather_texts(mpi, own);
    for (std::size_t rank = 0; rank < texts.size(); ++rank) {
        if (!texts[rank].empty()) return cat("rank ", rank, ": ", texts[rank]);
    }
    return "";
}

void barrier(const MpiSession& mpi) {
    const activity::Waiting waiting;
    MPI_CHECK(MPI_Barrier(mpi.comm()));
}

void quiet_barrier(const MpiSession& mpi) {
    const activity::Waiting waiting;
    MPI_Request request = MPI_REQUEST_NULL;
    MPI_CHECK(MPI_Ibarrier(mpi.comm(), &request));
    quiet_wait({&request, 1}, std::chrono::milliseconds(1));
}

}  // namespace loratrain
