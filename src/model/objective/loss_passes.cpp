#include "model/objective/loss_passes.h"

#include <algorithm>
#include <numeric>

namespace loratrain {

namespace {

/// Calls use(segment number, first sample, samples) for every segment.
template <class Use>
void for_each_segment(const Microbatch& microbatch, const Use& use) {
    std::size_t first = 0;
    for (std::size_t s = 0; s < microbatch.segments.size(); ++s) {
        const std::size_t count = microbatch.segments[s].samples.size();
        use(s, first, count);
        first += count;
    }
}

}  // namespace

LossPasses::LossPasses(const Job& job, ObjectiveOf objective_of, Head& head, const StageSums& sums,
                       Backend& backend)
    : job_(job), objective_of_(objective_of), head_(head), sums_(sums), backend_(backend) {}

const Objective& LossPasses::objective(const Segment& segment) const {
    return objective_of_(job_.adapter(segment.adapter));
}

bool LossPasses::needs_first_pass(const Microbatch& microbatch) const {
    return std::any_of(microbatch.segments.begin(), microbatch.segments.end(),
                       [&](const Segment& s) { return objective(s).needs_first_pass(); });
}

std::vector<float> LossPasses::scales(const Microbatch& microbatch, const LossTerms& terms,
                                      std::span<const double> nll) const {
    std::vector<float> all(static_cast<std::size_t>(microbatch.samples()));
    for_each_segment(microbatch, [&](std::size_t s, std::size_t first, std::size_t count) {
        const Segment& segment = microbatch.segments[s];
        objective(segment).scales({segment.samples, nll.empty() ? nll : nll.subspan(first, count)},
                                  terms.denominators[s], std::span(all).subspan(first, count));
    });
    return all;
}

void LossPasses::set_labels(const Microbatch& microbatch, std::span<const std::int32_t> targets,
                            const LossTerms& terms, MicrobatchTables& tables) const {
    if (terms.evaluation || needs_first_pass(microbatch)) {
        const std::vector<float> none(static_cast<std::size_t>(microbatch.samples()), 0.0F);
        tables.set_labels(microbatch, targets, none, LabelBins::samples);
    } else {
        tables.set_labels(microbatch, targets, scales(microbatch, terms, {}), LabelBins::adapters);
    }
}

void LossPasses::run(const Microbatch& microbatch, const LossTerms& terms, MicrobatchTables& tables,
                     const TensorView& x, const TensorView& dx) {
    if (terms.evaluation) return first_pass(tables, x);
    if (!needs_first_pass(microbatch)) return head_.loss(tables, x, sums_.loss, sums_.wrong, dx);
    first_pass(tables, x);
    const std::vector<double> nll = download_nll(tables);
    tables.scale_labels(scales(microbatch, terms, nll));
    head_.loss(tables, x, sums_.sample_nll, sums_.sample_wrong, dx);
    add_losses(microbatch, nll);
}

void LossPasses::first_pass(const MicrobatchTables& tables, const TensorView& x) {
    const std::size_t bytes = static_cast<std::size_t>(tables.samples()) * sizeof(double);
    backend_.zero(sums_.sample_nll, bytes);
    backend_.zero(sums_.sample_wrong, bytes);
    head_.loss(tables, x, sums_.sample_nll, sums_.sample_wrong, {});
}

std::vector<double> LossPasses::download_nll(const MicrobatchTables& tables) {
    std::vector<double> nll(static_cast<std::size_t>(tables.samples()));
    backend_.download(nll.data(), sums_.sample_nll, nll.size() * sizeof(double));
    return nll;
}

/// The sums per sample have been read: their memory takes the segments' losses to the backend.
void LossPasses::add_losses(const Microbatch& microbatch, std::span<const double> nll) {
    std::vector<double> losses(nll.size());
    std::vector<double> of_segments;
    std::vector<std::int32_t> adapters;
    for_each_segment(microbatch, [&](std::size_t s, std::size_t first, std::size_t count) {
        const Segment& segment = microbatch.segments[s];
        const auto own = std::span(losses).subspan(first, count);
        objective(segment).losses({segment.samples, nll.subspan(first, count)}, own);
        of_segments.push_back(std::accumulate(own.begin(), own.end(), 0.0));
        adapters.push_back(static_cast<std::int32_t>(number(segment.adapter)));
    });
    std::vector<std::int32_t> places(of_segments.size());
    std::iota(places.begin(), places.end(), 0);
    backend_.upload(sums_.sample_nll, of_segments.data(), of_segments.size() * sizeof(double));
    backend_.move_doubles({sums_.loss, sums_.sample_nll, adapters, places, true});
}

}  // namespace loratrain
