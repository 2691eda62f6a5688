#include "measure/cost_observer.h"

#include <algorithm>
#include <sstream>

#include "base/error.h"
#include "base/text.h"
#include "plan/cost/cost_model.h"

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

double CostObserver::one_layer(const CostLine& line, const AdapterLoads& loads) {
    return line.seconds(static_cast<double>(loads.total.tokens), loads.total.squares);
}

double CostObserver::scale_of_layers(const AdapterLoads& loads) const {
    const double prior = one_layer(prior_.layer_backward, loads);
    return prior > 0 ? one_layer(backward_.refined(), loads) / prior : 1.0;
}

void CostObserver::forward(const AdapterLoads& loads, double seconds) {
    const auto rows = static_cast<double>(loads.total.tokens);
    const double squares = loads.total.squares;
    const auto targets = static_cast<double>(loads.total.targets);
    if (stage_.has_head && stages_ > 1) {
        const double layers =
            layers_seconds(prior_.layer_forward, stage_, loads) * scale_of_layers(loads);
        add_if_plausible(head_, {targets, 0.0, std::max(0.0, seconds - layers)});
        return;
    }
    const double whole = forward_seconds(prior_, stage_, loads);
    if (!(whole > 0)) return;
    const double share = one_layer(prior_.layer_forward, loads) / whole;
    add_if_plausible(forward_, {rows, squares, seconds * share});
    if (!stage_.has_head) return;
    add_if_plausible(head_, {targets, 0.0, seconds * prior_.head.seconds(targets, 0.0) / whole});
}

void CostObserver::backward(const AdapterLoads& loads, double seconds) {
    const double whole = backward_seconds(prior_, stage_, loads, recompute_);
    if (!(whole > 0)) return;
    const double share = one_layer(prior_.layer_backward, loads) / whole;
    add_if_plausible(
        backward_, {static_cast<double>(loads.total.tokens), loads.total.squares, seconds * share});
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
