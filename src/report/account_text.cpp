#include "report/account_text.h"

namespace loratrain {

namespace {

constexpr double joules_per_kwh = 3.6e6;

std::string seconds_text(double seconds) {
    return format_fixed(seconds, 2);
}

std::string percent_text(double share) {
    return format_fixed(100.0 * share, 1) + "%";
}

TextRow kinds_row(const char* pass, const KindSeconds& kinds) {
    const KindSeconds shares = kinds.scaled_to(1.0);
    return {pass, percent_text(shares.attention), percent_text(shares.linears),
            percent_text(shares.head)};
}

std::string work_text(const RunAccount& account) {
    const double rate = account.flop_rate();
    const std::string useful =
        cat("useful work: ", format_fixed(rate * 1e-12, 3), " TFLOP/s per rank, ");
    if (account.peak_flop_rate <= 0.0) {
        return cat(useful, "no peak rate is known of '", account.device, "'");
    }
    return cat(useful, percent_text(rate / account.peak_flop_rate), " of ",
               format_fixed(account.peak_flop_rate * 1e-12, 0), " (dense bf16, by the maker of ",
               account.device, ")");
}

std::string speed_text(const RunAccount& account) {
    if (account.tokens <= 0.0) return "speed: this start trained no step";
    return cat("speed: ", format_fixed(account.training_tokens_per_second(), 0),
               " tokens/s from the first step on, ", format_fixed(account.tokens_per_second(), 0),
               " in all");
}

std::string energy_text(const RunAccount& account) {
    if (account.sensors == 0 || account.joules <= 0.0) {
        return "energy: not measured (no power sensor was read)";
    }
    std::string text = cat("energy: ", three_digits(account.joules / joules_per_kwh), " kWh by ",
                           account.sensors, account.sensors == 1 ? " GPU" : " GPUs");
    if (account.tokens > 0.0) {
        text += cat(", ", format_fixed(account.joules / account.tokens, 3), " J/token");
    }
    return text + " (sampled power, no hosts)";
}

}  // namespace

std::vector<TextRow> account_rows(const RunAccount& start, const RunAccount& all,
                                  std::size_t starts) {
    std::vector<TextRow> rows{{"phase", "mean s", "min s", "max s", "share"}};
    const bool several = starts > 1;
    if (several) rows.front().insert(rows.front().end(), {"all starts s", "share"});
    double sum = 0.0;
    double sum_of_all = 0.0;
    for (std::size_t p = 0; p < run_phase_count; ++p) {
        const auto phase = static_cast<RunPhase>(p);
        const RankSpread& spread = start.of(phase);
        sum += spread.mean;
        sum_of_all += all.of(phase).mean;
        if (spread.most <= 0.0 && all.of(phase).mean <= 0.0) continue;
        TextRow row{word_of(phase), seconds_text(spread.mean), seconds_text(spread.least),
                    seconds_text(spread.most), percent_text(start.share(phase))};
        if (several) {
            row.push_back(seconds_text(all.of(phase).mean));
            row.push_back(percent_text(all.share(phase)));
        }
        rows.push_back(std::move(row));
    }
    const auto share = [](double seconds, double wall) {
        return percent_text(wall > 0.0 ? seconds / wall : 0.0);
    };
    TextRow total{"total", seconds_text(sum), "", "", share(sum, start.wall_seconds)};
    if (several) {
        total.push_back(seconds_text(sum_of_all));
        total.push_back(share(sum_of_all, all.wall_seconds));
    }
    rows.push_back(std::move(total));
    return rows;
}

std::vector<TextRow> kind_rows(const RunAccount& account) {
    if (account.forward.sum() <= 0.0) return {};
    std::vector<TextRow> rows{
        {"estimate by the plan's costs", "attention", "linears, LoRA", "head, loss"},
        kinds_row("forward", account.forward)};
    if (account.backward.sum() > 0.0) rows.push_back(kinds_row("backward", account.backward));
    return rows;
}

std::vector<std::string> account_notes(const RunAccount& start, const RunAccount& all,
                                       std::size_t starts) {
    std::vector<std::string> notes{speed_text(start)};
    if (start.tokens > 0.0) notes.push_back(work_text(start));
    notes.push_back(energy_text(start));
    if (starts < 2) return notes;
    notes.push_back(cat("all ", starts, " starts: ", format_fixed(all.tokens, 0), " tokens, ",
                        format_fixed(all.tokens_per_second(), 0), " tokens/s in all; ",
                        energy_text(all)));
    return notes;
}

std::string account_text(const RunAccount& start, const RunAccount& all, std::size_t starts) {
    const std::string ranks = start.ranks == 1 ? "1 rank" : cat(start.ranks, " ranks");
    std::string text =
        cat("where the time of ", ranks, " went\n", text_table(account_rows(start, all, starts), 1),
            text_table(kind_rows(start), 1));
    for (const std::string& note : account_notes(start, all, starts)) text += "  " + note + "\n";
    return text;
}

}  // namespace loratrain
