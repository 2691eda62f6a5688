#include "io/run_files/run_account_json.h"

#include <cmath>

namespace loratrain {

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
