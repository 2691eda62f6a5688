#include "bench/bench_profile.h"

#include <sstream>
#include <string>

#include "backend/timed_backend.h"
#include "base/text.h"
#include "comm/collective.h"
#include "comm/timed_communicator.h"

namespace loratrain {

namespace {

std::string to_text(const OpTimes& times) {
    std::string text;
    for (std::size_t i = 0; i < timed_op_count; ++i) {
        text += cat(format_exact(times.seconds[i]), " ", times.calls[i], "\n");
    }
    return text;
}

OpTimes from_text(const std::string& text) {
    OpTimes times;
    std::istringstream in(text);
    for (std::size_t i = 0; i < timed_op_count; ++i) in >> times.seconds[i] >> times.calls[i];
    return times;
}

}  // namespace

BenchProfile profile_window(const CommandLine::Bench& bench, const BenchCase& bench_case,
                            const MpiSession& mpi, Communicator& communicator, Backend& backend) {
    OpTimer timer(backend);
    TimedBackend timed_backend(backend, timer);
    TimedCommunicator timed_communicator(communicator, timer);
    BenchRun run(bench_case, mpi, timed_communicator, timed_backend);
    run.run(bench_warmup_rounds);
    timer.start();
    BenchProfile profile;
    profile.rounds = bench.steps;
    profile.seconds = run.run(bench.steps).seconds;
    for (const std::string& text : gather_texts(mpi, to_text(timer.stop()))) {
        profile.ranks.push_back(from_text(text));
    }
    return profile;
}

}  // namespace loratrain
