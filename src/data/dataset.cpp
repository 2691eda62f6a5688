#include "data/dataset.h"

#include <algorithm>
#include <iterator>

#include "base/error.h"
#include "io/capped_problems.h"
#include "io/checksum.h"
#include "io/tokens/token_file.h"
#include "plan/pack/sample_order.h"

namespace loratrain {

namespace {

/// Is every label that is trained, two at least, the id of the token `by` behind its own, and not
/// always of its own? 1: so they lie where a program shifts labels itself, before the model.
bool are_labels_shifted(const TokenSample& sample, std::ptrdiff_t by) {
    int trained = 0;
    bool differs = false;
    const std::ptrdiff_t tokens = std::ssize(sample.input_ids);
    for (std::ptrdiff_t t = std::max<std::ptrdiff_t>(0, -by); t < std::min(tokens, tokens - by);
         ++t) {
        const std::int32_t label = sample.labels[static_cast<std::size_t>(t)];
        if (label == no_target) continue;
        if (label != sample.input_ids[static_cast<std::size_t>(t + by)]) return false;
        differs |= label != sample.input_ids[static_cast<std::size_t>(t)];
        ++trained;
    }
    return differs && trained > 1;
}

/// What one pass over a file gathers, sample by sample.
class Survey {
  public:
    Survey(const std::string& path, const DatasetJob& job, std::int64_t vocab_size)
        : job_(job), vocab_size_(vocab_size), problems_(path) {}

    void take(const std::string& where, const TokenSample& sample) {
        const auto tokens = static_cast<std::int64_t>(sample.input_ids.size());
        if (sample.labels == sample.input_ids) ++report_.all_trained;
        if (!sample.weights.empty()) ++report_.weighted;
        add_to_checksum(sample);
        check_ids(where, sample);
        check_shift(where, sample);
        if (sample.label && !is_example(where, sample)) return;
        const std::int64_t position = report_.samples++;
        if (tokens <= job_.max_seq_len) return keep(position, sample, tokens);
        switch (job_.over_length) {
            case OverLength::truncate:
                ++report_.truncated;
                return keep(position, sample, job_.max_seq_len);
            case OverLength::drop:
                ++report_.dropped;
                return;
            case OverLength::error:
                note_too_long(where, tokens);
        }
    }

    /// Samples that are longer than max_seq_len where that is an error.
    void report_too_long() {
        if (too_long_ == 0) return;
        std::string what = cat(first_too_long_, " tokens, max_seq_len is ", job_.max_seq_len);
        if (too_long_ == 1) {
            what = "sample has " + what;
        } else {
            what = cat("sample has ", what, "; ", too_long_, " of the ", report_.samples,
                       " samples are longer, the longest, ", longest_place_, ", has ", longest_);
        }
        problems_.add(first_place_, what,
                      cat("raise max_seq_len (", longest_,
                          " takes all), or set over_length to truncate or drop"));
    }

    /// Examples of each file behind its last whole group of `k`.
    void drop_ungrouped(const std::vector<std::string>& paths,
                        const std::vector<std::int64_t>& file_ends, std::int64_t k) {
        std::size_t left = 0;
        std::size_t first = 0;
        for (std::size_t f = 0; f < paths.size(); ++f) {
            std::size_t end = first;
            while (end < kept.size() && kept[end] < file_ends[f]) ++end;
            const auto count = static_cast<std::int64_t>(end - first);
            const std::int64_t rest = count % k;
            if (rest == count && rest > 0) {
                problems_.add(
                    paths[f],
                    cat("has ", rest, " examples, too few for a group of kl_batch_size ", k),
                    "give more, or a smaller kl_batch_size");
            }
            report_.ungrouped += rest;
            for (std::size_t i = first; i < end - static_cast<std::size_t>(rest); ++i, ++left) {
                kept[left] = kept[i];
                examples[left] = examples[i];
            }
            first = end;
        }
        kept.resize(left);
        examples.resize(left);
    }

    /// What is left of groups (TokenFile) of which a sample was dropped.
    void drop_parted_groups(std::int64_t group_samples) {
        std::size_t left = 0;
        for (std::size_t first = 0; first < kept.size();) {
            const std::int64_t group = kept[first] / group_samples;
            std::size_t end = first;
            while (end < kept.size() && kept[end] / group_samples == group) ++end;
            const bool whole = static_cast<std::int64_t>(end - first) == group_samples;
            for (; first < end; ++first) {
                if (!whole) {
                    ++report_.dropped;
                    if (infos[first].targets == 0) --report_.without_target;
                    continue;
                }
                kept[left] = kept[first];
                infos[left++] = infos[first];
            }
        }
        kept.resize(left);
        infos.resize(left);
    }

    std::vector<std::int64_t> kept;
    std::vector<SampleInfo> infos;
    std::vector<double> weights;
    std::vector<Example> examples;  ///< of labelled files, in place of infos

    CappedProblems& problems() { return problems_; }
    const LengthReport& report() const { return report_; }
    std::string checksum() const { return checksum_.hex(); }

  private:
    void add_to_checksum(const TokenSample& sample) {
        const std::uint64_t tokens = sample.input_ids.size();
        checksum_.update(&tokens, sizeof(tokens));
        checksum_.update(sample.input_ids.data(), tokens * sizeof(std::int32_t));
        checksum_.update(sample.labels.data(), tokens * sizeof(std::int32_t));
        for (const auto* list : {&sample.weights, &sample.advantages, &sample.logprobs}) {
            checksum_.update(list->data(), list->size() * sizeof(float));
        }
        if (sample.label) checksum_.update(&*sample.label, sizeof(bool));
    }

    bool is_example(const std::string& where, const TokenSample& sample) {
        return collect(problems_, [&] { example_of(where, sample); });
    }

    void note_too_long(const std::string& where, std::int64_t tokens) {
        if (++too_long_ == 1) {
            first_place_ = where;
            first_too_long_ = tokens;
        }
        if (tokens <= longest_) return;
        longest_ = tokens;
        longest_place_ = where;
    }

    bool in_vocabulary(std::int32_t id) const { return id >= 0 && id < vocab_size_; }

    /// Names the first bad id and the first bad label of a sample.
    void check_ids(const std::string& where, const TokenSample& sample) {
        const std::string hint = "was the file made with the tokenizer of this model?";
        const auto id = std::find_if_not(sample.input_ids.begin(), sample.input_ids.end(),
                                         [&](std::int32_t value) { return in_vocabulary(value); });
        if (id != sample.input_ids.end()) {
            problems_.add(where,
                          cat("token ", id - sample.input_ids.begin(), " is ", *id,
                              ", outside the vocabulary of ", vocab_size_),
                          hint);
        }
        const auto label = std::find_if_not(
            sample.labels.begin(), sample.labels.end(),
            [&](std::int32_t value) { return value == no_target || in_vocabulary(value); });
        if (label != sample.labels.end()) {
            problems_.add(where,
                          cat("label ", label - sample.labels.begin(), " is ", *label,
                              ", neither -100 nor in the vocabulary of ", vocab_size_),
                          hint);
        }
    }

    /// One problem for all samples.
    void check_shift(const std::string& where, const TokenSample& sample) {
        const bool next = !is_shifted_ && are_labels_shifted(sample, 1);
        if (is_shifted_ || (!next && !are_labels_shifted(sample, -1))) return;
        is_shifted_ = true;
        problems_.add(where,
                      cat("labels are shifted by one: each is the id of the ",
                          next ? "next token" : "token before"),
                      "training shifts labels itself: write each token's own id, or -100");
    }

    void keep(std::int64_t position, const TokenSample& sample, std::int64_t tokens) {
        // Labels shift by one: the first is nobody's target.
        if (sample.label) examples.push_back(example_of("", sample));
        const auto begin = sample.labels.begin();
        const auto targets = tokens - 1 - std::count(begin + 1, begin + tokens, no_target);
        if (targets == 0) ++report_.without_target;
        keep_weight(sample, tokens, static_cast<double>(targets));
        kept.push_back(position);
        infos.push_back({static_cast<std::int32_t>(tokens), static_cast<std::int32_t>(targets)});
    }

    /// Only single samples have weights, so weights are never dropped with a group.
    void keep_weight(const TokenSample& sample, std::int64_t tokens, double targets) {
        if (sample.weights.empty() && weights.empty()) return;
        for (std::size_t i = weights.size(); i < infos.size(); ++i) {
            weights.push_back(infos[i].targets);
        }
        double sum = 0.0;
        for (std::size_t t = 1; t < static_cast<std::size_t>(tokens); ++t) {
            if (sample.labels[t] != no_target && !sample.weights.empty()) {
                sum += double{sample.weights[t]};
            }
        }
        weights.push_back(sample.weights.empty() ? targets : sum);
    }

    const DatasetJob& job_;
    std::int64_t vocab_size_;
    CappedProblems problems_;
    LengthReport report_;
    Checksum checksum_;
    bool is_shifted_ = false;
    std::int64_t too_long_ = 0;
    std::int64_t first_too_long_ = 0;
    std::int64_t longest_ = 0;
    std::string first_place_;
    std::string longest_place_;
};

void check_outcome(const std::vector<std::string>& paths,
                   const std::vector<std::int64_t>& file_ends, const Survey& survey,
                   bool only_prompts, CappedProblems& problems) {
    std::int64_t first = 0;
    for (std::size_t f = 0; f < paths.size(); ++f) {
        const auto kept = std::lower_bound(survey.kept.begin(), survey.kept.end(), first);
        if (kept == survey.kept.end() || *kept >= file_ends[f]) {
            problems.add(paths[f],
                         cat("all ", file_ends[f] - first, " samples were dropped as too long"),
                         "raise max_seq_len, or set over_length to truncate");
        }
        first = file_ends[f];
    }
    if (!only_prompts && !survey.kept.empty() &&
        survey.report().without_target == static_cast<std::int64_t>(survey.kept.size())) {
        problems.add(join(paths, ", "), "no sample has a target: there is nothing to train on",
                     "labels must not be -100 everywhere; is max_seq_len long enough?");
    }
}

const char* kind_of(const TokenFile& file) {
    if (file.is_labelled()) return "examples with labels";
    if (file.is_rollouts()) return "rollouts";
    return file.group_samples() > 1 ? "pairs" : "single samples";
}

void check_alike(const std::vector<std::string>& paths,
                 const std::vector<std::unique_ptr<TokenFile>>& files, CappedProblems& problems) {
    for (std::size_t f = 1; f < files.size(); ++f) {
        const char* first = kind_of(*files.front());
        const char* kind = kind_of(*files[f]);
        if (kind == std::string_view(first)) continue;
        problems.add(paths[f], cat("holds ", kind, ", ", paths.front(), " ", first),
                     "give a dataset files of one kind");
    }
}

}  // namespace

Dataset::Dataset(const std::vector<std::string>& paths, const DatasetJob& job,
                 std::int64_t vocab_size)
    : max_tokens_(job.max_seq_len) {
    const bool bytes = job.tokenizer == Tokenizer::bytes;
    if (bytes && vocab_size <= byte_eos) {
        throw InputError(paths.front(),
                         cat("tokenizer bytes needs a vocabulary of ", byte_eos + 1,
                             ", the model has ", vocab_size),
                         "use another base model, or tokenise the data for this one");
    }
    Survey survey(join(paths, ", "), job, vocab_size);
    std::vector<std::unique_ptr<TokenFile>> files;
    for (const std::string& path : paths) {
        collect(survey.problems(), [&] {
            files.push_back(open_token_file(
                path, bytes, [&](const std::string& where, const TokenSample& sample) {
                    survey.take(where, sample);
                }));
            const std::string tokenizer = files.back()->tokenizer();
            if (!tokenizer.empty()) tokenizers_.emplace_back(path, tokenizer);
        });
        file_ends_.push_back(survey.report().samples);
    }
    survey.report_too_long();
    if (survey.problems().empty()) check_alike(paths, files, survey.problems());
    if (survey.problems().empty()) {
        file_ = join_token_files(std::move(files));
        group_units_ = file_->is_labelled() ? job.kl_batch_size : file_->group_samples();
        if (file_->group_samples() > 1) survey.drop_parted_groups(group_units_);
        check_outcome(paths, file_ends_, survey, job.only_prompts, survey.problems());
        if (file_->is_labelled()) survey.drop_ungrouped(paths, file_ends_, group_units_);
    }
    survey.problems().throw_if_any();
    kept_ = std::move(survey.kept);
    infos_ = std::move(survey.infos);
    weights_ = std::move(survey.weights);
    report_ = survey.report();
    checksum_ = survey.checksum();
    if (file_->is_labelled()) group_examples(std::move(survey.examples));
}

std::vector<std::vector<std::int64_t>> Dataset::positions_of_files() const {
    std::vector<std::vector<std::int64_t>> files;
    auto next = kept_.begin();
    std::int64_t first = 0;
    for (const std::int64_t end : file_ends_) {
        std::vector<std::int64_t>& of_file = files.emplace_back();
        for (; next != kept_.end() && *next < end; ++next) of_file.push_back(*next - first);
        first = end;
    }
    return files;
}

std::vector<std::int64_t> Dataset::samples_of_files() const {
    std::vector<std::int64_t> samples;
    const std::int64_t with_kl_samples = kl_groups_.empty() ? 1 : 2;
    for (const auto& of_file : positions_of_files())
        samples.push_back(with_kl_samples * std::ssize(of_file));
    return samples;
}

void Dataset::group_examples(std::vector<Example> examples) {
    kl_groups_ = KlGroups(std::move(examples), group_units_, max_tokens_);
    infos_ = kl_groups_.infos();
}

Dataset::Dataset(const Dataset& whole, const std::vector<bool>& marks, bool mark)
    : file_(whole.file_),
      file_ends_(whole.file_ends_),
      group_units_(whole.group_units_),
      max_tokens_(whole.max_tokens_) {
    Checksum checksum;
    std::vector<Example> examples;
    checksum.update(whole.checksum_.data(), whole.checksum_.size());
    for (std::size_t i = 0; i < marks.size(); ++i) {
        if (marks[i] != mark) continue;
        kept_.push_back(whole.kept_[i]);
        if (whole.kl_groups_.empty()) {
            infos_.push_back(whole.infos_[i]);
            if (!whole.weights_.empty()) weights_.push_back(whole.weights_[i]);
            if (infos_.back().targets == 0) ++report_.without_target;
        } else {
            examples.push_back(whole.kl_groups_.examples()[i]);
        }
        checksum.update(&kept_.back(), sizeof(kept_.back()));
    }
    report_.samples = std::ssize(kept_);
    if (!whole.kl_groups_.empty()) group_examples(std::move(examples));
    checksum_ = checksum.hex();
}

Dataset Dataset::hold_out(std::int64_t count, std::uint64_t seed) {
    const std::int64_t groups = std::ssize(kept_) / group_units_;
    LORATRAIN_CHECK(count >= 1 && count < groups, count, " of ", groups);
    constexpr std::int32_t before_all_epochs = -1;
    const auto order = epoch_order(seed, "eval_split", before_all_epochs, groups, true);
    std::vector<bool> marks(kept_.size());
    for (std::int64_t i = 0; i < count; ++i) {
        const std::int64_t first = order[static_cast<std::size_t>(i)] * group_units_;
        for (std::int64_t s = 0; s < group_units_; ++s) {
            marks[static_cast<std::size_t>(first + s)] = true;
        }
    }
    Dataset held_out(*this, marks, true);
    LengthReport report = report_;
    report.held_out = count * group_units_;
    *this = Dataset(*this, marks, false);
    report_ = report;
    return held_out;
}

Dataset Dataset::growing() {
    Dataset dataset;
    dataset.checksum_ = "grows";
    return dataset;
}

void Dataset::add(std::int64_t first, std::vector<TokenSample> samples) {
    LORATRAIN_CHECK(grows(), "samples for a dataset that does not grow");
    arrived_.emplace(first, std::move(samples));
}

void Dataset::forget_before(std::int64_t index) {
    std::erase_if(arrived_, [index](const auto& added) {
        return added.first + std::ssize(added.second) <= index;
    });
}

Dataset::~Dataset() = default;
Dataset::Dataset(Dataset&&) noexcept = default;
Dataset& Dataset::operator=(Dataset&&) noexcept = default;

TokenSample Dataset::read(std::int64_t index) const {
    if (grows()) {
        const auto behind = arrived_.upper_bound(index);
        LORATRAIN_CHECK(behind != arrived_.begin(), "sample ", index, " has not come");
        const auto& [first, samples] = *std::prev(behind);
        LORATRAIN_CHECK(index - first < std::ssize(samples), "sample ", index, " has not come");
        return samples[static_cast<std::size_t>(index - first)];
    }
    LORATRAIN_CHECK(index >= 0 && index < std::ssize(infos_), "sample ", index);
    if (!kl_groups_.empty()) {
        return kl_groups_.sample(index, [this](std::int64_t example) {
            return file_->read(kept_[static_cast<std::size_t>(example)]);
        });
    }
    TokenSample sample = file_->read(kept_[static_cast<std::size_t>(index)]);
    if (static_cast<std::int64_t>(sample.input_ids.size()) > max_tokens_) {
        sample.input_ids.resize(static_cast<std::size_t>(max_tokens_));
        sample.labels.resize(static_cast<std::size_t>(max_tokens_));
        for (auto* list : {&sample.weights, &sample.advantages, &sample.logprobs}) {
            if (!list->empty()) list->resize(static_cast<std::size_t>(max_tokens_));
        }
    }
    return sample;
}

}  // namespace loratrain
