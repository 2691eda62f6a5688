#include "io/run_files/run_account.h"

#include <algorithm>

namespace loratrain {

namespace {

constexpr std::array<const char*, run_phase_count> phase_words{
    "start",   "planning",   "forward",    "backward",   "optimizer", "communication",
    "waiting", "evaluation", "generation", "checkpoint", "export",    "other"};

double ratio(double value, double by) {
    return by > 0.0 ? value / by : 0.0;
}

}  // namespace

const char* word_of(RunPhase phase) {
    return phase_words[static_cast<std::size_t>(phase)];
}

KindSeconds& KindSeconds::operator+=(const KindSeconds& other) {
    attention += other.attention;
    linears += other.linears;
    head += other.head;
    return *this;
}

KindSeconds KindSeconds::scaled_to(double seconds) const {
    const double factor = ratio(seconds, sum());
    return {factor * attention, factor * linears, factor * head};
}

double RunAccount::share(RunPhase phase) const {
    return ratio(of(phase).mean, wall_seconds);
}

double RunAccount::tokens_per_second() const {
    return ratio(tokens, wall_seconds);
}

double RunAccount::training_tokens_per_second() const {
    return ratio(tokens, training_seconds);
}

double RunAccount::flop_rate() const {
    return ratio(useful_flop, training_seconds * ranks);
}

RunAccount sum_of(const std::vector<RunAccount>& starts) {
    RunAccount sum;
    if (starts.empty()) return sum;
    sum.ranks = starts.back().ranks;
    sum.device = starts.back().device;
    sum.peak_flop_rate = starts.back().peak_flop_rate;
    for (const RunAccount& start : starts) {
        sum.wall_seconds += start.wall_seconds;
        sum.training_seconds += start.training_seconds;
        for (std::size_t p = 0; p < run_phase_count; ++p) {
            sum.phases[p].mean += start.phases[p].mean;
        }
        sum.forward += start.forward;
        sum.backward += start.backward;
        sum.tokens += start.tokens;
        sum.useful_flop += start.useful_flop;
        sum.joules += start.joules;
    }
    const bool measured = std::all_of(starts.begin(), starts.end(),
                                      [](const RunAccount& start) { return start.sensors > 0; });
    sum.sensors = measured ? starts.back().sensors : 0;
    if (!measured) sum.joules = 0.0;
    return sum;
}

}  // namespace loratrain
