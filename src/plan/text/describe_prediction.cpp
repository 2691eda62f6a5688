#include "plan/text/describe_prediction.h"

#include <numeric>

#include "base/text.h"
#include "config/job_words.h"
#include "plan/cost/host_links.h"
#include "plan/replica_view.h"

namespace loratrain {

namespace {

std::string percent(double share) {
    return format_fixed(100.0 * share, 1) + "%";
}

std::string idle_shares(const Prediction& prediction) {
    std::string text = percent(prediction.mean_idle_share()) + " of all ranks' time";
    if (prediction.idle_share.size() < 2) return text;
    std::vector<std::string> stages;
    for (const double share : prediction.idle_share) stages.push_back(percent(share));
    return cat(text, "; by stage ", join(stages, ", "));
}

/// Of several replicas, what each gets to do in the rounds played, and how busy its stages are.
std::string replica_shares(const Plan& plan, const Prediction& prediction) {
    if (plan.replicas.size() == 1 || prediction.idle_share.empty()) return "";
    const double all =
        std::accumulate(prediction.replica_tokens.begin(), prediction.replica_tokens.end(), 0.0);
    std::string text;
    auto idle = prediction.idle_share.begin();
    for (std::size_t r = 0; r < plan.replicas.size(); ++r) {
        const auto stages = std::ssize(plan.replicas[r].stages);
        const double idle_sum = std::accumulate(idle, idle + stages, 0.0);
        idle += stages;
        text += cat("replica ", r, r < 10 ? "   " : "  ",
                    percent(static_cast<double>(prediction.replica_tokens[r]) / all),
                    " of the tokens, busy ", percent(1.0 - idle_sum / static_cast<double>(stages)),
                    "\n");
    }
    return text;
}

std::string how_far(const Prediction& prediction) {
    if (prediction.rounds_played >= prediction.rounds) return "all simulated";
    return cat(prediction.rounds_played, " simulated, the others extrapolated");
}

double speed_of(const std::vector<PolicyPrediction>& policies, SchedulePolicy policy) {
    for (const PolicyPrediction& entry : policies) {
        if (entry.policy == policy && entry.prediction) {
            return entry.prediction->tokens_per_second();
        }
    }
    return 0.0;
}

/// `compared`: the speed that it is compared with; 0 = none.
TextRow policy_row(const std::string& name, const std::optional<Prediction>& prediction,
                   double compared) {
    if (!prediction) return {name, "does not fit", "-", "-", "-"};
    const double speed = prediction->tokens_per_second();
    const bool comparable = speed > 0.0 && compared > 0.0;
    return {name, format_fixed(speed, 0), human_duration(prediction->seconds),
            percent(prediction->mean_idle_share()),
            comparable ? format_fixed(compared / speed, 2) + " x as fast" : std::string("-")};
}

}  // namespace

std::string describe(const Plan& plan, const Prediction& prediction) {
    const std::string speed = format_fixed(prediction.tokens_per_second(), 0);
    std::string text = cat("prediction  costs ", prediction_source(plan), "\n");
    text += cat("speed       ", speed, " tokens/s\n");
    text += cat("whole job   ", human_duration(prediction.seconds), " for ", prediction.tokens,
                " tokens in ", prediction.rounds, " rounds (", how_far(prediction),
                "), without evaluation and checkpoints\n");
    text += cat("idle        ", idle_shares(prediction), "\n");
    text += replica_shares(plan, prediction);
    const std::string fillings = to_text(prediction.fillings);
    if (!fillings.empty()) {
        text += cat("packing     ", fillings, " (the fastest way to fill each block of rounds)\n");
    }
    return text;
}

std::string to_text(const LinkCost& link) {
    constexpr double giga = 1e9;
    constexpr double mega = 1e6;
    const double rate = link.per_byte > 0.0 ? 1.0 / link.per_byte : 0.0;
    const std::string latency = cat(format_fixed(link.fixed * mega, 0), " us");
    if (rate == 0.0) return latency;
    // So that what is rounded to 1000.0 MB/s is 1.00 GB/s.
    return cat(rate < 0.9999 * giga ? cat(format_fixed(rate / mega, 1), " MB/s, ")
                                    : cat(format_fixed(rate / giga, 2), " GB/s, "),
               latency);
}

std::string describe_links(const Job& job, const Plan& plan, const Cluster& cluster) {
    const std::vector<ReplicaView> replicas = views_of(plan);
    const CostModel& costs = predicted_costs_of(replicas.front());
    const std::int32_t hosts = host_count(cluster);
    if (hosts == 1 || !costs.between_hosts) return "";
    const LinkCost taken = between_hosts_of(job, cluster);
    const LinkCost& link = *costs.between_hosts;
    const bool measured = link.fixed != taken.fixed || link.per_byte != taken.per_byte;
    const std::string source = measured ? ", measured"
                               : job.cluster.any()
                                   ? ", as cluster.between_hosts says"
                                   : ", built in; cluster.between_hosts says otherwise";
    const std::string inside =
        hosts < cluster.ranks ? cat("inside a host ", to_text(costs.message), "; ") : "";
    return cat("messages    ", inside, "between ", hosts, " hosts ", to_text(link), source, "\n");
}

std::string describe(const std::vector<PolicyPrediction>& policies, SchedulePolicy chosen) {
    const double own = speed_of(policies, chosen);
    const std::string name = word_of(schedule_policy_words, chosen);
    std::vector<TextRow> rows{{"policy", "tokens/s", "whole job", "idle", cat(name, " is")}};
    for (const PolicyPrediction& entry : policies) {
        const std::string word = word_of(schedule_policy_words, entry.policy);
        const double compared = entry.policy == chosen ? 0.0 : own;
        rows.push_back(policy_row(word, entry.prediction, compared));
        if (!entry.as_published) continue;
        rows.push_back(policy_row(word + " as published", entry.as_published, own));
    }
    return text_table(rows, 1) +
           "sequential and 1f1b train one adapter to its end, then the next. A batch has as few "
           "microbatches as it needs (sequential), or at least one for each stage (1f1b)\n";
}

std::string describe(const Prediction& own, std::int32_t ranks,
                     const std::vector<IdleRemedy>& remedies) {
    const auto row = [](const std::string& change, const Prediction& what, std::int32_t on) {
        const double speed = what.tokens_per_second();
        return TextRow{change, cat(on), format_fixed(speed, 0), format_fixed(speed / on, 0),
                       percent(what.mean_idle_share())};
    };
    std::vector<TextRow> rows{{"what keeps ranks busier", "ranks", "tokens/s", "per rank", "idle"},
                              row("the job as it is", own, ranks)};
    for (const IdleRemedy& remedy : remedies) {
        rows.push_back(remedy.prediction
                           ? row(remedy.change, *remedy.prediction, remedy.ranks)
                           : TextRow{remedy.change, cat(remedy.ranks), "does not fit", "-", "-"});
    }
    return cat(text_table(rows, 1),
               "more adapters do not change what each learns; another batch size does\n");
}

std::string describe(const std::vector<RankChoice>& choices) {
    constexpr double seconds_of_hour = 3600.0;
    std::vector<TextRow> rows{
        {"ranks", "deployment", "tokens/s", "hours", "rank-hours", "efficiency"}};
    double first = 0.0;  // tokens/s of a rank
    std::string obstacles;
    for (const RankChoice& choice : choices) {
        if (!choice.obstacle.empty() || choice.seconds <= 0.0) {
            rows.push_back({cat(choice.ranks), "-", "does not fit", "-", "-", "-"});
            obstacles += cat("on ", choice.ranks,
                             choice.ranks == 1 ? " rank: " : " ranks: ", choice.obstacle, "\n");
            continue;
        }
        const double speed = static_cast<double>(choice.tokens) / choice.seconds;
        if (first == 0.0) first = speed / choice.ranks;
        const double hours = choice.seconds / seconds_of_hour;
        rows.push_back({cat(choice.ranks), deployment_text(choice.deployment),
                        format_fixed(speed, 0), three_digits(hours),
                        three_digits(hours * choice.ranks), percent(speed / choice.ranks / first)});
    }
    return text_table(rows, 2) + obstacles;
}

std::string describe(const DeploymentComparison& comparison) {
    if (comparison.predictions.size() < 2) return "";
    const auto& own = comparison.predictions.front().prediction;
    const double own_speed = own ? own->tokens_per_second() : 0.0;
    std::vector<TextRow> rows{
        {"parallel.deployment, by built-in costs", "tokens/s", "whole job", "idle", "speed"}};
    for (const DeploymentPrediction& entry : comparison.predictions) {
        const bool is_own = &entry == &comparison.predictions.front();
        rows.push_back(policy_row(deployment_text(entry.deployment) + (is_own ? ", as it is" : ""),
                                  entry.prediction, 0.0));
        if (is_own || !entry.prediction || own_speed <= 0.0) continue;
        rows.back().back() =
            format_fixed(entry.prediction->tokens_per_second() / own_speed, 2) + " x as fast";
    }
    const DeploymentSearch& search = comparison.found.search;
    std::string text = cat(
        text_table(rows, 1), comparison.found.options.size(), " ways to cut a replica, ",
        search.options, " of them worth while; these form ", format_fixed(search.combinations, 0),
        " deployments, of which ", search.solved.size(), " were solved");
    if (search.options_left_out > 0) {
        text +=
            cat(" (too many: ", search.options_left_out, " of the ways left out; ", search.bisected,
                " more by bisection and ", search.exchanged, " by exchanging replicas among all)");
    }
    return text + "\n";
}

std::string describe(const std::vector<Baseline>& baselines) {
    std::vector<TextRow> rows{
        {"ways to train, by built-in costs", "deployment", "rank-seconds a round", "share"}};
    const double first = baselines.empty() ? 0.0 : baselines.front().rank_seconds;
    for (const Baseline& row : baselines) {
        if (row.rank_seconds <= 0.0) {
            rows.push_back({row.name, "-", "does not fit", "-"});
            continue;
        }
        rows.push_back({row.name,
                        row.deployment.empty() ? "one of its own for each adapter"
                                               : deployment_text(row.deployment),
                        format_fixed(row.rank_seconds, 2),
                        first > 0.0 ? percent(row.rank_seconds / first) : std::string("-")});
    }
    return text_table(rows, 2);
}

}  // namespace loratrain
