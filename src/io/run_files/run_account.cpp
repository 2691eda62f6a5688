#include "io/run_files/run_account.h"

#include <algorithm>
#include <cmath>

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

namespace {

OrderedJson kinds_json(const KindSeconds& kinds) {
    return {{"attention", kinds.attention}, {"linears", kinds.linears}, {"head", kinds.head}};
}

/// JsonRefusal: it is no number that seconds can be.
double number_in(const OrderedJson& json, const char* key) {
    const double value = json.at(key).get<double>();
    if (!std::isfinite(value) || value < 0.0) throw JsonRefusal("a number is out of range");
    return value;
}

KindSeconds kinds_in(const OrderedJson& json) {
    return {number_in(json, "attention"), number_in(json, "linears"), number_in(json, "head")};
}

}  // namespace

OrderedJson to_json(const RunAccount& account) {
    OrderedJson json{{"ranks", account.ranks},
                     {"until_checkpoint", account.until_checkpoint},
                     {"wall_seconds", account.wall_seconds},
                     {"training_seconds", account.training_seconds}};
    for (std::size_t p = 0; p < run_phase_count; ++p) {
        const RankSpread& spread = account.phases[p];
        OrderedJson& phase = json["phases"][word_of(static_cast<RunPhase>(p))];
        phase["mean_seconds"] = spread.mean;
        phase["share"] = account.share(static_cast<RunPhase>(p));
        if (spread.most > 0.0) {
            phase["min_seconds"] = spread.least;
            phase["max_seconds"] = spread.most;
        }
    }
    json["estimated_kinds"] = {{"forward", kinds_json(account.forward)},
                               {"backward", kinds_json(account.backward)}};
    json["tokens"] = account.tokens;
    json["tokens_per_second"] = account.tokens_per_second();
    json["training_tokens_per_second"] = account.training_tokens_per_second();
    json["useful_flop"] = account.useful_flop;
    json["device"] = account.device;
    const bool peak = account.peak_flop_rate > 0.0;
    json["peak_flop_rate"] = peak ? OrderedJson(account.peak_flop_rate) : OrderedJson(nullptr);
    json["sensors"] = account.sensors;
    json["joules"] = account.sensors > 0 ? OrderedJson(account.joules) : OrderedJson(nullptr);
    return json;
}

std::optional<RunAccount> run_account_from_json(const OrderedJson& json) {
    try {
        RunAccount account;
        account.ranks = whole_number(json, "ranks", 1);
        account.until_checkpoint = json.at("until_checkpoint").get<bool>();
        account.wall_seconds = number_in(json, "wall_seconds");
        account.training_seconds = number_in(json, "training_seconds");
        for (std::size_t p = 0; p < run_phase_count; ++p) {
            const OrderedJson& phase = json.at("phases").at(word_of(static_cast<RunPhase>(p)));
            RankSpread& spread = account.phases[p];
            spread.mean = number_in(phase, "mean_seconds");
            if (!phase.contains("max_seconds")) continue;
            spread.least = number_in(phase, "min_seconds");
            spread.most = number_in(phase, "max_seconds");
        }
        account.forward = kinds_in(json.at("estimated_kinds").at("forward"));
        account.backward = kinds_in(json.at("estimated_kinds").at("backward"));
        account.tokens = number_in(json, "tokens");
        account.useful_flop = number_in(json, "useful_flop");
        account.device = json.at("device").get<std::string>();
        if (!json.at("peak_flop_rate").is_null()) {
            account.peak_flop_rate = number_in(json, "peak_flop_rate");
        }
        account.sensors = whole_number(json, "sensors");
        if (account.sensors > 0) account.joules = number_in(json, "joules");
        return account;
    } catch (const OrderedJson::exception&) {
        return std::nullopt;
    }
}

std::vector<RunAccount> accounts_in(const OrderedJson& provenance) {
    std::vector<RunAccount> accounts;
    const auto starts = provenance.find("starts");
    if (starts == provenance.end() || !starts->is_array()) return accounts;
    for (const OrderedJson& start : *starts) {
        if (!start.is_object() || !start.contains("account")) continue;
        if (auto account = run_account_from_json(start["account"])) accounts.push_back(*account);
    }
    return accounts;
}

}  // namespace loratrain
