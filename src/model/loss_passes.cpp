#include "model/loss_passes.h"

#include <algorithm>
#include <numeric>

#include "base/error.h"
#include "plan/sample_counts.h"

namespace loratrain {

namespace {

/// Of cross-entropy; the losses with rewards, and of rollouts, are of plain log-probabilities.
TokenLoss token_loss(const LossJob& loss) {
    if (loss.has_rewards() || loss.is_of_rollouts()) return {};
    return {static_cast<float>(loss.label_smoothing_factor), static_cast<float>(loss.z_loss),
            loss.is_dft()};
}

/// ObjectiveSamples::nll_share of a segment that is trained.
double nll_share(const LossJob& loss, const LossTerms& terms, std::size_t segment) {
    const auto& pairs = terms.pairs_per_chosen_target;
    return segment < pairs.size() ? loss.nll_weight() * pairs[segment] : 0.0;
}

}  // namespace

template <class Use>
void LossPasses::for_each_segment(const Microbatch& microbatch, const Use& use) {
    Place place;
    for (const Segment& segment : microbatch.segments) {
        place.count = segment.samples.size();
        place.targets = 0;
        for (const SampleRef& sample : segment.samples) {
            place.targets += static_cast<std::size_t>(sample.targets);
        }
        use(place);
        ++place.segment;
        place.first += place.count;
        place.first_target += place.targets;
    }
}

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

bool LossPasses::scales_rows(const Microbatch& microbatch) const {
    return std::any_of(microbatch.segments.begin(), microbatch.segments.end(),
                       [&](const Segment& s) { return objective(s).scales_rows(); });
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
    for_each_segment(microbatch, [&](const Place& place) {
        if (!objective(microbatch.segments[place.segment]).compares_hidden()) return;
        for (std::size_t sample = place.first; sample < place.first + place.count; ++sample) {
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
    for_each_segment(microbatch, [&](const Place& place) {
        const Segment& segment = microbatch.segments[place.segment];
        if (!objective(segment).compares_hidden()) return;
        ObjectiveSamples samples{segment.samples, nll.subspan(place.first, place.count)};
        samples.loss = job_.adapter(segment.adapter).loss;
        samples.hidden = std::span(hidden).subspan(end * columns, place.count * columns);
        HiddenLoss& loss = losses[place.segment];
        loss = objective(segment).hidden_loss(samples, terms.denominators[place.segment]);
        head_.add_end_gradient(tables, x, static_cast<std::int64_t>(end), loss.gradient, dx);
        steps_[{segment.adapter, segment.step}].rewards.compared += loss.compared;
        end += place.count;
    });
    return losses;
}

std::vector<double> LossPasses::references(const Segment& segment, bool evaluation) const {
    const AdapterJob& adapter = job_.adapter(segment.adapter);
    std::vector<double> own;
    if (!adapter.loss.has_reference()) return own;
    const ReferenceValues& all = references_.of(reference_of(adapter));
    const auto first = evaluation ? plan_.adapters[index(segment.adapter)].samples : 0;
    for (const SampleRef& sample : segment.samples) {
        const auto values = all.of(static_cast<std::size_t>(first + sample.index));
        own.insert(own.end(), values.begin(), values.end());
    }
    return own;
}

ObjectiveSamples LossPasses::samples_of(const Microbatch& microbatch, const LossTerms& terms,
                                        const Place& place, const FirstPass& found,
                                        std::span<const double> reference) const {
    const Segment& segment = microbatch.segments[place.segment];
    const LossJob& loss = job_.adapter(segment.adapter).loss;
    const std::span nll(found.nll);
    ObjectiveSamples samples{segment.samples,
                             nll.empty() ? nll : nll.subspan(place.first, place.count),
                             reference,
                             loss,
                             nll_share(loss, terms, place.segment),
                             group_samples(segment)};
    if (!objective(segment).scales_rows()) return samples;
    const auto own = [&](const auto& values) {
        return std::span(values).subspan(place.first_target, place.targets);
    };
    LORATRAIN_CHECK(reference.empty() || reference.size() == place.targets, reference.size(),
                    " reference values of ", place.targets, " targets");
    samples.rows = {own(found.target_nll), reference, own(found.advantages), own(found.logprobs),
                    own(found.entropies)};
    return samples;
}

std::vector<float> LossPasses::scales(const Microbatch& microbatch, const LossTerms& terms,
                                      const FirstPass& found) const {
    std::vector<float> all(static_cast<std::size_t>(microbatch.samples()));
    std::vector<float> rows(found.target_nll.size());
    for_each_segment(microbatch, [&](const Place& place) {
        const Segment& segment = microbatch.segments[place.segment];
        const double denominator = terms.denominators[place.segment];
        const std::vector<double> reference = references(segment, false);
        const ObjectiveSamples samples = samples_of(microbatch, terms, place, found, reference);
        const auto own = std::span(all).subspan(place.first, place.count);
        if (objective(segment).scales_rows()) {
            return objective(segment).row_scales(
                samples, denominator, std::span(rows).subspan(place.first_target, place.targets));
        }
        objective(segment).scales(samples, denominator, own);
        if (!found.by_target) return;
        auto row = rows.begin() + static_cast<std::ptrdiff_t>(place.first_target);
        for (std::size_t s = 0; s < own.size(); ++s) {
            row = std::fill_n(row, segment.samples[s].targets, own[s]);
        }
    });
    return found.by_target ? rows : all;
}

void LossPasses::set_labels(const Microbatch& microbatch, const MicrobatchRows& rows,
                            const LossTerms& terms, MicrobatchTables& tables) const {
    std::vector<TokenLoss> forms(microbatch.segments.size());
    for (std::size_t s = 0; s < forms.size() && !terms.evaluation; ++s) {
        forms[s] = token_loss(job_.adapter(microbatch.segments[s].adapter).loss);
    }
    if (terms.evaluation || needs_first_pass(microbatch)) {
        const std::vector<float> none(static_cast<std::size_t>(microbatch.samples()), 0.0F);
        const bool by_target = terms.evaluation ? terms.by_target : scales_rows(microbatch);
        tables.set_labels(microbatch, rows, none, forms,
                          by_target ? LabelBins::targets : LabelBins::samples);
    } else {
        const bool by_sample = sums_by_sample(microbatch);
        tables.set_labels(microbatch, rows, scales(microbatch, terms, FirstPass{}), forms,
                          by_sample ? LabelBins::samples : LabelBins::adapters);
    }
    if (!terms.evaluation && compares_hidden(microbatch)) tables.set_ends(ends(microbatch, rows));
}

void LossPasses::run(const Microbatch& microbatch, const MicrobatchRows& rows,
                     const LossTerms& terms, MicrobatchTables& tables, const TensorView& x,
                     const TensorView& dx) {
    if (terms.evaluation) return sums_per_sample(tables, x, {});
    if (!needs_first_pass(microbatch)) {
        if (!sums_by_sample(microbatch)) return head_.loss(tables, x, sums_.loss, sums_.wrong, dx);
        sums_per_sample(tables, x, dx);
        const FirstPass sums = found(microbatch, rows, tables);
        return add_losses(microbatch, terms, sums,
                          compare(microbatch, terms, tables, sums.nll, x, dx));
    }
    if (scales_rows(microbatch)) {
        sums_per_target(tables, x);
    } else {
        sums_per_sample(tables, x, {});
    }
    const FirstPass sums = found(microbatch, rows, tables);
    tables.scale_labels(scales(microbatch, terms, sums));
    head_.loss(tables, x, sums_.sample_nll, sums_.sample_wrong, dx);
    add_losses(microbatch, terms, sums, compare(microbatch, terms, tables, sums.nll, x, dx));
}

void LossPasses::sums_per_target(const MicrobatchTables& tables, const TensorView& x) {
    const std::size_t bytes = static_cast<std::size_t>(tables.label_bins()) * sizeof(double);
    backend_.zero(sums_.sample_nll, bytes);
    backend_.zero(sums_.sample_wrong, bytes);
    head_.loss(tables, x, sums_.sample_nll, nullptr, {}, sums_.sample_wrong);
}

void LossPasses::sums_per_sample(const MicrobatchTables& tables, const TensorView& x,
                                 const TensorView& dx) {
    const std::size_t bytes = static_cast<std::size_t>(tables.label_bins()) * sizeof(double);
    backend_.zero(sums_.sample_nll, bytes);
    backend_.zero(sums_.sample_wrong, bytes);
    head_.loss(tables, x, sums_.sample_nll, sums_.sample_wrong, dx);
}

LossPasses::FirstPass LossPasses::found(const Microbatch& microbatch, const MicrobatchRows& rows,
                                        const MicrobatchTables& tables) {
    std::vector<double> sums(static_cast<std::size_t>(tables.label_bins()));
    backend_.download(sums.data(), sums_.sample_nll, sums.size() * sizeof(double));
    FirstPass found;
    if (!scales_rows(microbatch)) {
        found.nll = std::move(sums);
        return found;
    }
    found.by_target = true;
    found.entropies.resize(sums.size());
    backend_.download(found.entropies.data(), sums_.sample_wrong, sums.size() * sizeof(double));
    for (std::size_t sample = 0, target = 0; sample + 1 < rows.offsets.size(); ++sample) {
        double& nll = found.nll.emplace_back();
        for (auto row = static_cast<std::size_t>(rows.offsets[sample]);
             row < static_cast<std::size_t>(rows.offsets[sample + 1]); ++row) {
            if (rows.targets[row] < 0) continue;
            nll += sums[target++];
            found.advantages.push_back(rows.advantages[row]);
            found.logprobs.push_back(rows.logprobs[row]);
        }
    }
    found.target_nll = std::move(sums);
    return found;
}

/// The sums per sample have been read: their memory takes the segments' losses to the backend.
void LossPasses::add_losses(const Microbatch& microbatch, const LossTerms& terms,
                            const FirstPass& found, std::span<const HiddenLoss> compared) {
    std::vector<double> losses(found.nll.size());
    std::vector<double> of_segments;
    std::vector<std::int32_t> adapters;
    for_each_segment(microbatch, [&](const Place& place) {
        const Segment& segment = microbatch.segments[place.segment];
        const auto own = std::span(losses).subspan(place.first, place.count);
        const std::vector<double> reference = references(segment, false);
        const ObjectiveSamples samples = samples_of(microbatch, terms, place, found, reference);
        objective(segment).losses(samples, own);
        add_to_step(samples, segment, own);
        of_segments.push_back(std::accumulate(own.begin(), own.end(), 0.0));
        if (!compared.empty()) of_segments.back() += compared[place.segment].value;
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
    if (files.empty() && !samples.loss.has_rewards() && !samples.loss.is_of_rollouts()) return;
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
