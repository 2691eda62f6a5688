#include "model/objective/loss_passes.h"

#include <algorithm>
#include <numeric>

#include "plan/sample_counts.h"

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

/// Of cross-entropy; the losses with rewards are of plain log-probabilities.
TokenLoss token_loss(const LossJob& loss) {
    if (loss.has_rewards()) return {};
    return {static_cast<float>(loss.label_smoothing_factor), static_cast<float>(loss.z_loss),
            loss.is_dft()};
}

/// ObjectiveSamples::nll_share of a segment that is trained.
double nll_share(const LossJob& loss, const LossTerms& terms, std::size_t segment) {
    const auto& pairs = terms.pairs_per_chosen_target;
    return segment < pairs.size() ? loss.nll_weight() * pairs[segment] : 0.0;
}

}  // namespace

LossPasses::LossPasses(const Job& job, const Plan& plan, const ReferenceLosses& references,
                       ObjectiveOf objective_of, Head& head, const StageSums& sums,
                       Backend& backend)
    : job_(job),
      plan_(plan),
      references_(references),
      objective_of_(objective_of),
      head_(head),
      sums_(sums),
      backend_(backend) {}

const Objective& LossPasses::objective(const Segment& segment) const {
    return objective_of_(job_.adapter(segment.adapter));
}

std::int32_t LossPasses::group_samples(const Segment& segment) const {
    return plan_.adapters[index(segment.adapter)].group_samples;
}

bool LossPasses::needs_first_pass(const Microbatch& microbatch) const {
    return std::any_of(microbatch.segments.begin(), microbatch.segments.end(),
                       [&](const Segment& s) { return objective(s).needs_first_pass(); });
}

bool LossPasses::reports_files(const Microbatch& microbatch) const {
    return std::any_of(
        microbatch.segments.begin(), microbatch.segments.end(),
        [this](const Segment& s) { return plan_.adapters[index(s.adapter)].files.size() > 1; });
}

bool LossPasses::compares_hidden(const Microbatch& microbatch) const {
    return std::any_of(microbatch.segments.begin(), microbatch.segments.end(),
                       [&](const Segment& s) { return objective(s).compares_hidden(); });
}

bool LossPasses::sums_by_sample(const Microbatch& microbatch) const {
    return reports_files(microbatch) || compares_hidden(microbatch);
}

std::vector<std::int32_t> LossPasses::ends(const Microbatch& microbatch,
                                           const MicrobatchRows& rows) const {
    std::vector<std::int32_t> ends;
    for_each_segment(microbatch, [&](std::size_t s, std::size_t first, std::size_t count) {
        if (!objective(microbatch.segments[s]).compares_hidden()) return;
        for (std::size_t sample = first; sample < first + count; ++sample) {
            std::int32_t row = rows.offsets[sample + 1] - 1;
            while (row > rows.offsets[sample] &&
                   rows.targets[static_cast<std::size_t>(row) - 1] < 0) {
                --row;
            }
            ends.push_back(row);
        }
    });
    return ends;
}

std::vector<HiddenLoss> LossPasses::compare(const Microbatch& microbatch, const LossTerms& terms,
                                            const MicrobatchTables& tables,
                                            std::span<const double> nll, const TensorView& x,
                                            const TensorView& dx) {
    if (tables.ends().empty()) return {};
    std::vector<HiddenLoss> losses(microbatch.segments.size());
    const std::vector<float> hidden = head_.hidden_ends(tables, x);
    const auto columns = static_cast<std::size_t>(x.cols);
    std::size_t end = 0;
    for_each_segment(microbatch, [&](std::size_t s, std::size_t first, std::size_t count) {
        const Segment& segment = microbatch.segments[s];
        if (!objective(segment).compares_hidden()) return;
        ObjectiveSamples samples{segment.samples, nll.subspan(first, count)};
        samples.loss = job_.adapter(segment.adapter).loss;
        samples.hidden = std::span(hidden).subspan(end * columns, count * columns);
        losses[s] = objective(segment).hidden_loss(samples, terms.denominators[s]);
        head_.add_end_gradient(tables, x, static_cast<std::int64_t>(end), losses[s].gradient, dx);
        steps_[{segment.adapter, segment.step}].rewards.compared += losses[s].compared;
        end += count;
    });
    return losses;
}

std::vector<double> LossPasses::references(const Segment& segment, bool evaluation) const {
    const AdapterJob& adapter = job_.adapter(segment.adapter);
    std::vector<double> own;
    if (!adapter.loss.has_reference()) return own;
    const std::vector<double>& all = references_.of(reference_of(adapter));
    const auto first = evaluation ? plan_.adapters[index(segment.adapter)].samples : 0;
    for (const SampleRef& sample : segment.samples) {
        own.push_back(all.at(static_cast<std::size_t>(first + sample.index)));
    }
    return own;
}

std::vector<float> LossPasses::scales(const Microbatch& microbatch, const LossTerms& terms,
                                      std::span<const double> nll) const {
    std::vector<float> all(static_cast<std::size_t>(microbatch.samples()));
    for_each_segment(microbatch, [&](std::size_t s, std::size_t first, std::size_t count) {
        const Segment& segment = microbatch.segments[s];
        const auto own = nll.empty() ? nll : nll.subspan(first, count);
        const std::vector<double> reference = references(segment, false);
        const LossJob& loss = job_.adapter(segment.adapter).loss;
        objective(segment).scales({segment.samples, own, reference, loss, nll_share(loss, terms, s),
                                   group_samples(segment)},
                                  terms.denominators[s], std::span(all).subspan(first, count));
    });
    return all;
}

void LossPasses::set_labels(const Microbatch& microbatch, const MicrobatchRows& rows,
                            const LossTerms& terms, MicrobatchTables& tables) const {
    std::vector<TokenLoss> forms(microbatch.segments.size());
    for (std::size_t s = 0; s < forms.size() && !terms.evaluation; ++s) {
        forms[s] = token_loss(job_.adapter(microbatch.segments[s].adapter).loss);
    }
    if (terms.evaluation || needs_first_pass(microbatch)) {
        const std::vector<float> none(static_cast<std::size_t>(microbatch.samples()), 0.0F);
        tables.set_labels(microbatch, rows, none, forms, LabelBins::samples);
    } else {
        const bool by_sample = sums_by_sample(microbatch);
        tables.set_labels(microbatch, rows, scales(microbatch, terms, {}), forms,
                          by_sample ? LabelBins::samples : LabelBins::adapters);
    }
    if (!terms.evaluation && compares_hidden(microbatch)) tables.set_ends(ends(microbatch, rows));
}

void LossPasses::run(const Microbatch& microbatch, const LossTerms& terms, MicrobatchTables& tables,
                     const TensorView& x, const TensorView& dx) {
    if (terms.evaluation) return first_pass(tables, x);
    if (!needs_first_pass(microbatch)) {
        if (!sums_by_sample(microbatch)) return head_.loss(tables, x, sums_.loss, sums_.wrong, dx);
        sums_per_sample(tables, x, dx);
        const std::vector<double> nll = download_nll(tables);
        return add_losses(microbatch, terms, nll, compare(microbatch, terms, tables, nll, x, dx));
    }
    first_pass(tables, x);
    const std::vector<double> nll = download_nll(tables);
    tables.scale_labels(scales(microbatch, terms, nll));
    head_.loss(tables, x, sums_.sample_nll, sums_.sample_wrong, dx);
    add_losses(microbatch, terms, nll, compare(microbatch, terms, tables, nll, x, dx));
}

void LossPasses::first_pass(const MicrobatchTables& tables, const TensorView& x) {
    sums_per_sample(tables, x, {});
}

void LossPasses::sums_per_sample(const MicrobatchTables& tables, const TensorView& x,
                                 const TensorView& dx) {
    const std::size_t bytes = static_cast<std::size_t>(tables.samples()) * sizeof(double);
    backend_.zero(sums_.sample_nll, bytes);
    backend_.zero(sums_.sample_wrong, bytes);
    head_.loss(tables, x, sums_.sample_nll, sums_.sample_wrong, dx);
}

std::vector<double> LossPasses::download_nll(const MicrobatchTables& tables) {
    std::vector<double> nll(static_cast<std::size_t>(tables.samples()));
    backend_.download(nll.data(), sums_.sample_nll, nll.size() * sizeof(double));
    return nll;
}

/// The sums per sample have been read: their memory takes the segments' losses to the backend.
void LossPasses::add_losses(const Microbatch& microbatch, const LossTerms& terms,
                            std::span<const double> nll, std::span<const HiddenLoss> compared) {
    std::vector<double> losses(nll.size());
    std::vector<double> of_segments;
    std::vector<std::int32_t> adapters;
    for_each_segment(microbatch, [&](std::size_t s, std::size_t first, std::size_t count) {
        const Segment& segment = microbatch.segments[s];
        const auto own = std::span(losses).subspan(first, count);
        const std::vector<double> reference = references(segment, false);
        const LossJob& loss = job_.adapter(segment.adapter).loss;
        const ObjectiveSamples samples{
            segment.samples,           nll.subspan(first, count), reference, loss,
            nll_share(loss, terms, s), group_samples(segment)};
        objective(segment).losses(samples, own);
        add_to_step(samples, segment, own);
        of_segments.push_back(std::accumulate(own.begin(), own.end(), 0.0));
        if (!compared.empty()) of_segments.back() += compared[s].value;
        adapters.push_back(static_cast<std::int32_t>(number(segment.adapter)));
    });
    std::vector<std::int32_t> places(of_segments.size());
    std::iota(places.begin(), places.end(), 0);
    backend_.upload(sums_.sample_nll, of_segments.data(), of_segments.size() * sizeof(double));
    backend_.move_doubles({sums_.loss, sums_.sample_nll, adapters, places, true});
}

void LossPasses::add_to_step(const ObjectiveSamples& samples, const Segment& segment,
                             std::span<const double> losses) {
    const auto files = samples_of_files(plan_.adapters[index(segment.adapter)], false);
    if (files.empty() && !samples.loss.has_rewards()) return;
    StepSums& step = steps_[{segment.adapter, segment.step}];
    step.rewards.add(objective(segment).rewards(samples));
    step.file_losses.resize(files.size());
    for (std::size_t i = 0; i < losses.size() && !files.empty(); ++i) {
        step.file_losses[file_of(files, segment.samples[i].index)] += losses[i];
    }
}

RewardSums LossPasses::evaluated(const Segment& segment, double pairs_per_chosen_target,
                                 std::span<const double> nll, std::span<double> losses) const {
    const std::vector<double> reference = references(segment, true);
    const LossJob& loss = job_.adapter(segment.adapter).loss;
    const ObjectiveSamples samples{
        segment.samples,       nll, reference, loss, loss.nll_weight() * pairs_per_chosen_target,
        group_samples(segment)};
    objective(segment).losses(samples, losses);
    return objective(segment).rewards(samples);
}

LossPasses::StepSums LossPasses::take_sums(AdapterId adapter, std::int32_t step) {
    const auto found = steps_.extract({adapter, step});
    return found ? found.mapped() : StepSums{};
}

}  // namespace loratrain
