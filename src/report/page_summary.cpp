#include <cmath>

#include "base/text.h"
#include "config/job_words.h"
#include "config/targets_text.h"
#include "plan/memory/memory_model.h"
#include "report/html.h"
#include "report/page_parts.h"

namespace loratrain::report {

namespace {

using html::Cell;
using html::number_cell;
using html::text_cell;

std::string badge_class(const RunStatus& status, const Pulse& pulse) {
    if (pulse.life == Life::alive) return "badge live";
    if (pulse.life == Life::silent || pulse.life == Life::vanished) return "badge bad";
    if (status.state == "done") return status.reason.empty() ? "badge good" : "badge wait";
    return status.state == "failed" ? "badge bad" : "badge wait";
}

std::string tile(const std::string& value, const std::string& name) {
    return "<div class=\"tile\"><b>" + html::escape(value) + "</b><span>" + html::escape(name) +
           "</span></div>\n";
}

/// The file's name of an absolute path; names of models have a / of their own.
std::string base_name(const std::string& model) {
    return model.starts_with('/') ? model.substr(model.rfind('/') + 1) : model;
}

/// "bf16", or "fp32, weights nf4".
std::string types_text(const Plan& plan) {
    const WeightTraits& weights = traits_of(linear_format(plan));
    const bool alike = gemm_reads(weights, plan.compute);
    return (plan.fp8_linears ? "fp8 linears, " : "") + to_string(plan.compute) +
           (alike ? std::string() : cat(", weights ", weights.name));
}

std::string status_tiles(const RunStatus& status, const Pulse& pulse) {
    std::string tiles = tile(cat(status.round, " / ", status.rounds), "round");
    tiles += tile(human_duration(status.elapsed_seconds), "training time");
    if (status.tokens_per_second > 0) {
        tiles += tile(format_fixed(status.tokens_per_second, 0), "tokens/s, all adapters, lately");
    }
    if (pulse.life == Life::alive && status.seconds_left) {
        tiles += tile(human_duration(*status.seconds_left), "left, about");
    }
    tiles += tile(std::to_string(status.ranks), status.ranks == 1 ? "rank" : "ranks");
    return tiles;
}

/// What each replica is.
std::vector<std::string> replica_words(const Plan& plan) {
    std::vector<std::string> words;
    for (const ReplicaPlan& replica : plan.replicas) {
        words.push_back(cat(replica.stages.size(),
                            replica.stages.size() == 1 ? " stage, " : " stages, ",
                            replica.tensor == 1 ? "" : cat(replica.tensor, " lanes each, "),
                            replica.microbatch_tokens, " tokens a microbatch"));
    }
    return words;
}

std::string run_tiles(const RunRecord& run) {
    std::size_t done = 0;
    double tokens = 0.0;
    for (const AdapterResult& result : run.results) {
        if (result.status == "DONE" || result.status.starts_with("STOPPED")) ++done;
        tokens += result.summary.tokens;
    }
    std::string tiles = tile(cat(done, " / ", run.results.size()), "adapters done");
    tiles += tile(tokens < 1e5 ? format_fixed(tokens, 0) : format_fixed(tokens / 1e6, 2) + " M",
                  "tokens trained");
    if (!run.parts.empty()) tiles += tile(std::to_string(run.parts.size()), "runs merged");
    if (!run.plan) return tiles;
    const Plan& plan = *run.plan;
    const std::string& named = run.job.model.base_model_name_or_path;
    tiles +=
        tile(cat(plan.model.family, ", ", plan.model.layers, " layers x ", plan.model.hidden_size),
             "base model" + (named.empty() ? "" : ", " + base_name(named)));
    tiles += tile(cat(word_of(backend_words, plan.backend), ", ", types_text(plan)),
                  "backend, " + join(replica_words(plan), "; "));
    return tiles;
}

Cell loss_cell(const std::optional<double>& value) {
    if (!value) return number_cell("-");
    return number_cell(std::isfinite(*value) ? format_fixed(*value, 4) : "not finite");
}

Cell status_cell(const std::string& status) {
    const std::string text = html::escape(status);
    return html::markup_cell("<span class=\"" + text + "\">" + text + "</span>");
}

/// " / 120"; "" where the plan is missing, or older than an adapter that was added.
std::string total_steps(const RunRecord& run, AdapterId adapter) {
    if (!run.plan || index(adapter) >= run.plan->adapters.size()) return "";
    return cat(" / ", run.plan->adapters[index(adapter)].total_steps);
}

std::vector<Cell> adapter_row(const RunRecord& run, const AdapterResult& result) {
    const AdapterJob& adapter = run.job.adapter(result.adapter);
    const MetricsSummary& s = result.summary;
    std::vector<Cell> row{text_cell(adapter.name), status_cell(result.status),
                          text_cell(run.job.dataset(adapter.dataset).name)};
    const std::vector<Cell> keys = key_cells(adapter);
    row.insert(row.end(), keys.begin(), keys.end());
    const std::vector<Cell> results{
        number_cell(cat(s.steps, total_steps(run, result.adapter))),
        loss_cell(train_loss(s)),
        loss_cell(s.first_eval_loss),
        loss_cell(s.last_eval_loss),
        loss_cell(s.best_eval_loss),
        number_cell(s.last_exact_match ? format_fixed(100 * *s.last_exact_match, 1) + "%" : "-"),
        number_cell(format_fixed(s.tokens, 0))};
    row.insert(row.end(), results.begin(), results.end());
    return row;
}

/// What an adapter trains: "LoRA", "rsLoRA, LoRA+ 16", "DoRA, 2 rows of tokens", "PiSSA", ...
std::string form_text(const AdapterJob& adapter) {
    std::string text = adapter.use_rslora ? "rsLoRA" : "LoRA";
    if (adapter.is_vera()) text = "VeRA";
    if (adapter.use_dora) text = adapter.use_rslora ? "DoRA, rsLoRA" : "DoRA";
    if (has_residual_start(adapter.form)) {
        const bool pissa = adapter.init_lora_weights == Initial::pissa;
        text = cat(pissa ? "PiSSA" : "OLoRA", adapter.use_rslora ? ", rsLoRA" : "");
    }
    if (adapter.loraplus_lr_ratio != 1.0) {
        text += ", LoRA+ " + format_exact(adapter.loraplus_lr_ratio);
    }
    const std::size_t tokens = adapter.trainable_token_indices.size();
    if (tokens > 0) text += cat(", ", tokens, tokens == 1 ? " row" : " rows", " of tokens");
    return text;
}

}  // namespace

std::vector<Cell> key_heads() {
    return {text_cell("form"),           number_cell("r"),     number_cell("alpha"),
            number_cell("dropout"),      text_cell("targets"), number_cell("batch"),
            number_cell("learning rate")};
}

std::vector<Cell> key_cells(const AdapterJob& adapter) {
    return {text_cell(form_text(adapter)),
            number_cell(std::to_string(adapter.r)),
            number_cell(adapter.is_vera() ? "-" : format_exact(adapter.lora_alpha)),
            number_cell(format_exact(adapter.lora_dropout)),
            text_cell(targets_text(adapter)),
            number_cell(std::to_string(adapter.global_batch_size)),
            number_cell(format_exact(adapter.learning_rate))};
}

std::string summary(const RunRecord& run) {
    std::string markup = "<h1>" + html::escape(run.dir) + "</h1>\n";
    if (run.status) {
        markup += cat("<div><span class=\"", badge_class(*run.status, run.pulse), "\">",
                      html::escape(run_word(*run.status, run.pulse)), "</span> ",
                      html::escape(pulse_text(*run.status, run.pulse)), "</div>\n");
    } else {
        markup += "<div><span class=\"badge\">starting</span> no heartbeat yet</div>\n";
    }
    markup += "<div class=\"tiles\">\n";
    if (run.status) markup += status_tiles(*run.status, run.pulse);
    return markup + run_tiles(run) + "</div>\n";
}

std::string adapters(const RunRecord& run) {
    std::vector<Cell> head{text_cell("adapter"), text_cell("status"), text_cell("dataset")};
    const std::vector<Cell> keys = key_heads();
    head.insert(head.end(), keys.begin(), keys.end());
    const std::string accuracy = accuracy_name(run.job.adapters);
    for (const char* name : {"steps", "train loss", "eval before", "eval loss", "best eval",
                             accuracy.c_str(), "tokens"}) {
        head.push_back(number_cell(name));
    }
    std::vector<std::vector<Cell>> rows;
    for (const AdapterResult& result : run.results) rows.push_back(adapter_row(run, result));
    return "<h2>Adapters, by dataset and eval loss</h2>\n" + html::table(head, rows) +
           "<p class=\"note\">Train loss: mean of the last 10 steps. Exact match: the "
           "share of evaluated samples in which every target token is the most likely one. "
           "Reward accuracy: the share of pairs whose chosen sample has the higher reward.</p>\n";
}

}  // namespace loratrain::report
