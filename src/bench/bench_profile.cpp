#include "bench/bench_profile.h"

#include "backend/timed_backend.h"
#include "comm/collective_values.h"
#include "comm/timed_communicator.h"

namespace loratrain {

template <class Archive>
void fields(Archive& archive, OpTimes& times) {
    archive("seconds", times.seconds);
    archive("calls", times.calls);
}

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
    profile.ranks = gather(mpi, timer.stop());
    return profile;
}

}  // namespace loratrain
