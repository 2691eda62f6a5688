/// Mutated inputs for everything that the program reads, from fixed seeds.
///
///   fuzz_inputs [--cases N] [--seconds S] [--seed S] [--target NAME]   exit code 1 with a finding
///   fuzz_inputs --target NAME --case N [--seed S]                      repeats one, in this
///   process
///
/// N cases in all (LORATRAIN_FUZZ_CASES; default_cases), or as many as fit in S seconds of a
/// processor (LORATRAIN_FUZZ_SECONDS), shared out among the targets; seed 1 or LORATRAIN_FUZZ_SEED.

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <limits>
#include <map>
#include <string>

#include "base/error.h"
#include "base/system.h"
#include "fuzz/supervisor.h"

namespace loratrain::fuzz {
namespace {

constexpr const char* default_cases = "6000";

using Options = std::map<std::string, std::string>;

Options parse(int argc, char** argv) {
    Options options;
    const std::string seed = environment("LORATRAIN_FUZZ_SEED");
    options["--seed"] = seed.empty() ? "1" : seed;
    const std::string cases = environment("LORATRAIN_FUZZ_CASES");
    options["--cases"] = cases.empty() ? default_cases : cases;
    const std::string seconds = environment("LORATRAIN_FUZZ_SECONDS");
    if (!seconds.empty()) options["--seconds"] = seconds;
    for (int i = 1; i + 1 < argc; i += 2) options[argv[i]] = argv[i + 1];
    return options;
}

struct Run {
    const TargetKind* kind;
    std::uint64_t done = 0;
    Tally tally;
};

std::vector<Run> chosen(const Options& options) {
    std::vector<Run> runs;
    const auto name = options.find("--target");
    for (const TargetKind& kind : target_kinds()) {
        if (name == options.end() || name->second == kind.name) runs.push_back({&kind, 0, {}});
    }
    if (runs.empty()) throw Error("there is no such target");
    return runs;
}

void print(const std::string& name, const Tally& tally) {
    std::printf(
        "%-12s %10llu cases, %10llu refused, %llu findings, %.1f s, slowest %.2f s (%llu)\n",
        name.c_str(), static_cast<unsigned long long>(tally.cases),
        static_cast<unsigned long long>(tally.refused),
        static_cast<unsigned long long>(tally.findings), tally.all_seconds, tally.slowest,
        static_cast<unsigned long long>(tally.slowest_case));
    std::fflush(stdout);
}

constexpr double turn = 60.0;  // seconds of all targets, after which they begin again

/// Cases of one target, up to `count` or for `seconds`; 0 = no limit.
void run_share(Run& run, std::uint64_t seed, std::uint64_t count, double seconds) {
    const std::uint64_t last =
        count > 0 ? run.done + count : std::numeric_limits<std::uint64_t>::max();
    const Tally more = run_cases(*run.kind, seed, run.done, last, {.all_seconds = seconds});
    run.done += more.cases;
    run.tally.add(more);
}

/// Turns of all targets until the cases or the time are used up.
int run_all(const Options& options) {
    std::vector<Run> runs = chosen(options);
    const std::uint64_t seed = std::stoull(options.at("--seed"));
    std::uint64_t shares = 0;
    for (const Run& run : runs) shares += static_cast<std::uint64_t>(run.kind->share);
    const bool timed = options.contains("--seconds");
    double left = timed ? std::stod(options.at("--seconds")) : 0.0;
    const std::uint64_t unit =
        timed ? 0 : std::max<std::uint64_t>(1, std::stoull(options.at("--cases")) / shares);
    const auto start = std::chrono::steady_clock::now();
    do {
        const double seconds = std::min(left, turn) / static_cast<double>(shares);
        for (Run& run : runs) {
            run_share(run, seed, unit * static_cast<std::uint64_t>(run.kind->share),
                      seconds * run.kind->share);
        }
        left -= turn;
    } while (left > 0.0);
    Tally all;
    for (const Run& run : runs) {
        print(run.kind->name, run.tally);
        all.add(run.tally);
    }
    print("all", all);
    std::printf("seed %llu, %.0f s\n", static_cast<unsigned long long>(seed), seconds_since(start));
    return all.findings > 0 ? 1 : 0;
}

int run(const Options& options) {
    const auto number = options.find("--case");
    if (number == options.end()) return run_all(options);
    for (const Run& each : chosen(options)) {
        run_one(*each.kind, std::stoull(options.at("--seed")), std::stoull(number->second));
    }
    return 0;
}

}  // namespace
}  // namespace loratrain::fuzz

int main(int argc, char** argv) {
    // Files of cases are many and short-lived.
    if (loratrain::environment("TMPDIR").empty()) ::setenv("TMPDIR", "/dev/shm", 1);
    return loratrain::fuzz::run(loratrain::fuzz::parse(argc, argv));
}
