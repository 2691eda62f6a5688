#include "train/cost_observer.h"

#include <algorithm>
#include <sstream>

#include "base/error.h"
#include "base/text.h"
#include "plan/cost_model.h"

namespace loratrain {

namespace {

constexpr double enough_to_judge = 8.0;
constexpr double far_off = 3.0;

void add_if_plausible(CostFit& fit, const CostObservation& observation) {
    const double usual = fit.refined().seconds(observation.rows, observation.squares);
    const bool judged = fit.sums().count >= enough_to_judge && usual > 0;
    if (!judged || observation.seconds < far_off * usual) fit.add(observation);
}

std::string sums_text(const CostSums& sums) {
    std::string text = format_exact(sums.count);
    for (std::size_t i = 0; i < 3; ++i) {
        for (const double value : sums.products[i]) text += " " + format_exact(value);
        text += " " + format_exact(sums.results[i]);
    }
    return text + " ";
}

CostSums read_sums(std::istream& in) {
    CostSums sums;
    in >> sums.count;
    for (std::size_t i = 0; i < 3; ++i) {
        for (double& value : sums.products[i]) in >> value;
        in >> sums.results[i];
    }
    LORATRAIN_CHECK(!in.fail(), "sums of observed costs are incomplete");
    return sums;
}

}  // namespace

CostObserver::CostObserver(const CostModel& prior, const StagePlan& stage, std::size_t stages,
                           Recompute recompute)
    : prior_(prior),
      stage_(stage),
      stages_(stages),
      recompute_(recompute),
      forward_(prior.layer_forward),
      backward_(prior.layer_backward),
      head_(prior.head) {}

double CostObserver::scale_of_layers(const MicrobatchLoad& load) const {
    const auto rows = static_cast<double>(load.tokens);
    const double prior = prior_.layer_backward.seconds(rows, load.squares);
    return prior > 0 ? backward_.refined().seconds(rows, load.squares) / prior : 1.0;
}

void CostObserver::forward(const MicrobatchLoad& load, double seconds) {
    const auto rows = static_cast<double>(load.tokens);
    const double one_layer = prior_.layer_forward.seconds(rows, load.squares);
    if (!stage_.has_head) {
        add_if_plausible(forward_, {rows, load.squares, seconds / stage_.layer_count});
        return;
    }
    const auto targets = static_cast<double>(load.targets);
    if (stages_ > 1) {
        const double layers = stage_.layer_count * one_layer * scale_of_layers(load);
        add_if_plausible(head_, {targets, 0.0, std::max(0.0, seconds - layers)});
        return;
    }
    const double whole = forward_seconds(prior_, stage_, load);
    if (!(whole > 0)) return;
    add_if_plausible(forward_, {rows, load.squares, seconds * one_layer / whole});
    add_if_plausible(head_, {targets, 0.0, seconds * prior_.head.seconds(targets, 0.0) / whole});
}

void CostObserver::backward(const MicrobatchLoad& load, double seconds) {
    const auto rows = static_cast<double>(load.tokens);
    const double whole = backward_seconds(prior_, stage_, load, recompute_);
    if (!(whole > 0)) return;
    const double share = prior_.layer_backward.seconds(rows, load.squares) / whole;
    add_if_plausible(backward_, {rows, load.squares, seconds * share});
}

std::int64_t CostObserver::observations() const {
    return static_cast<std::int64_t>(backward_.sums().count);
}

std::string CostObserver::to_text() const {
    return sums_text(forward_.sums()) + sums_text(backward_.sums()) + sums_text(head_.sums());
}

void CostObserver::add(const std::string& text) {
    std::istringstream in(text);
    for (CostFit* fit : {&forward_, &backward_, &head_}) fit->merge(read_sums(in));
}

CostModel CostObserver::refined() const {
    CostModel costs = prior_;
    costs.layer_forward = forward_.refined();
    costs.layer_backward = backward_.refined();
    costs.head = head_.refined();
    costs.full_speed_ranks = 0.0;  // what was observed is already slowed down
    costs.source = cat(prior_.source, ", refined by ", observations(), " microbatches");
    return costs;
}

}  // namespace loratrain
