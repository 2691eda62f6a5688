#include "measure/cost_observer.h"

#include <algorithm>

#include "base/text.h"
#include "plan/cost/cost_model.h"

namespace loratrain {

namespace {

constexpr double enough_to_judge = 8.0;
constexpr double far_off = 3.0;

void add_if_plausible(CostFit& fit, const CostObservation& observation) {
    const double usual =
        fit.refined().seconds(observation.rows, observation.squares, observation.segments);
    const bool judged = fit.sums().count >= enough_to_judge && usual > 0;
    if (!judged || observation.seconds < far_off * usual) fit.add(observation);
}

/// A layer's forward and backward.
CostLine host_line(const HostCosts& host) {
    return {host.layer_forward.fixed + host.layer_backward.fixed,
            host.layer_forward.per_segment + host.layer_backward.per_segment, 0.0};
}

double segments_of(const AdapterLoads& loads) {
    return static_cast<double>(loads.segments());
}

/// Of a line that knows segments.
CostObservation layer_observation(const CostLine& prior, const AdapterLoads& loads,
                                  double seconds) {
    return {static_cast<double>(loads.total.tokens), loads.total.squares, seconds,
            prior.per_segment > 0 ? segments_of(loads) : 0.0};
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
      head_(prior.head),
      host_(host_line(prior.host)) {}

double CostObserver::one_layer(const CostLine& line, const AdapterLoads& loads) {
    return line.seconds(static_cast<double>(loads.total.tokens), loads.total.squares,
                        segments_of(loads));
}

double CostObserver::scale_of_layers(const AdapterLoads& loads) const {
    const double prior = one_layer(prior_.layer_backward, loads);
    return prior > 0 ? one_layer(backward_.refined(), loads) / prior : 1.0;
}

/// Takes what one of a microbatch's passes took for the host, where that holds it up.
bool CostObserver::held_up(const AdapterLoads& loads, double seconds, double expected) {
    if (!(expected > 0) || !is_held_up(prior_, stage_, loads)) return false;
    const double segments = segments_of(loads);
    const double layer = host_line(prior_.host).seconds(segments, 0.0);
    if (layer > 0) add_if_plausible(host_, {segments, 0.0, layer * seconds / expected});
    return true;
}

void CostObserver::forward(const AdapterLoads& loads, double seconds) {
    if (held_up(loads, seconds, forward_seconds(prior_, stage_, loads))) return;
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
    add_if_plausible(forward_, layer_observation(prior_.layer_forward, loads, seconds * share));
    if (!stage_.has_head) return;
    add_if_plausible(head_, {targets, 0.0, seconds * prior_.head.seconds(targets, 0.0) / whole});
}

void CostObserver::backward(const AdapterLoads& loads, double seconds) {
    const double whole = backward_seconds(prior_, stage_, loads, recompute_);
    if (!(whole > 0) || held_up(loads, seconds, whole)) return;
    const double share = one_layer(prior_.layer_backward, loads) / whole;
    add_if_plausible(backward_, layer_observation(prior_.layer_backward, loads, seconds * share));
}

std::int64_t CostObserver::observations() const {
    // Of what the host holds up both passes are observed for the same.
    return static_cast<std::int64_t>(backward_.sums().count + host_.sums().count / 2.0);
}

CostObserver::Sums CostObserver::sums() const {
    return {forward_.sums(), backward_.sums(), head_.sums(), host_.sums()};
}

void CostObserver::add(const Sums& sums) {
    const std::array<CostFit*, 4> fits{&forward_, &backward_, &head_, &host_};
    for (std::size_t i = 0; i < fits.size(); ++i) fits[i]->merge(sums[i]);
}

/// What a layer takes is shared out as before, what is beside the layers grows with it.
HostCosts CostObserver::refined_host() const {
    const CostLine before = host_line(prior_.host);
    const CostLine now = host_.refined();
    if (!(before.seconds(1.0, 0.0) > 0)) return prior_.host;
    HostCosts host = scaled(prior_.host, now.seconds(1.0, 0.0) / before.seconds(1.0, 0.0));
    const double forward = prior_.host.layer_forward.seconds(1.0) / before.seconds(1.0, 0.0);
    host.layer_forward = {forward * now.fixed, forward * now.per_token};
    host.layer_backward = {(1.0 - forward) * now.fixed, (1.0 - forward) * now.per_token};
    return host;
}

CostModel CostObserver::refined() const {
    CostModel costs = prior_;
    costs.layer_forward = forward_.refined();
    costs.layer_backward = backward_.refined();
    costs.head = head_.refined();
    costs.host = refined_host();
    costs.full_speed_ranks = 0.0;  // what was observed is already slowed down
    costs.source = cat(prior_.source, ", refined by ", observations(), " microbatches");
    return costs;
}

}  // namespace loratrain
