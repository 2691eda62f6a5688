#include <algorithm>
#include <iterator>
#include <optional>
#include <vector>

#include "base/error.h"
#include "io/capped_problems.h"
#include "io/hdf5_handle.h"
#include "io/hdf5_slab.h"
#include "io/hdf5_storage.h"
#include "io/tokens/token_formats.h"
#include "io/tokens/token_rules.h"

namespace loratrain {

namespace {

constexpr const char* format_name = "loratrain-tokens-1";
constexpr std::int64_t scan_tokens = 1 << 20;
constexpr const char* layout_hint =
    "a token file has int32 tokens, int32 labels of the same length and int64 offsets [samples + "
    "1], and may have float weights, or float advantages and logprobs, of the same length; beside "
    "these an int32 adapter_step [samples]";

bool is_signed_integer(hid_t dataset, std::size_t bytes) {
    const Hdf5Handle type(H5Dget_type(dataset), H5Tclose);
    return H5Tget_class(type.get()) == H5T_INTEGER && H5Tget_size(type.get()) == bytes &&
           H5Tget_sign(type.get()) == H5T_SGN_2;
}

bool is_float(hid_t dataset) {
    const Hdf5Handle type(H5Dget_type(dataset), H5Tclose);
    return H5Tget_class(type.get()) == H5T_FLOAT;
}

class TokenHdf5 final : public TokenFile {
  public:
    TokenHdf5(const std::string& path, const SampleVisitor& visit) : path_(path) {
        const Hdf5Lock lock;
        file_ = open_hdf5_file(path);
        // Files of other programs need not say it.
        check_format(path_, read_text_attribute(file_.get(), "format").value_or(format_name),
                     {format_name}, "make the file with scripts/prepare_data.py of this version");
        CappedProblems problems(path);
        check_names(problems);
        tokenizer_ = read_text_attribute(file_.get(), "tokenizer").value_or("");
        tokens_ = open_list("tokens", 4, problems);
        if (H5Lexists(file_.get(), "labels", H5P_DEFAULT) > 0) {
            labels_ = open_list("labels", 4, problems);
        }
        if (H5Lexists(file_.get(), "weights", H5P_DEFAULT) > 0) {
            weights_ = open_list("weights", 0, problems);
        }
        open_rollouts(problems);
        const Hdf5Handle offsets = open_list("offsets", 8, problems);
        problems.throw_if_any();
        read_offsets(offsets.get(), problems);
        problems.throw_if_any();
        scan(visit, problems);
        problems.throw_if_any();
    }

    std::int64_t size() const override { return static_cast<std::int64_t>(offsets_.size()) - 1; }
    std::string tokenizer() const override { return tokenizer_; }
    bool is_rollouts() const override { return static_cast<bool>(rollouts_[0]); }
    std::int64_t length(std::int64_t sample) const override {
        return offset(sample + 1) - offset(sample);
    }
    std::string where(std::int64_t sample) const override { return cat(path_, ":sample ", sample); }
    TokenSample read(std::int64_t sample) const override {
        const std::int64_t first = offset(sample);
        TokenSample read = read_range(first, offset(sample + 1) - first);
        settle_weights(read);
        const Hdf5Lock lock;
        if (adapter_steps_) read.adapter_step = adapter_step(sample);
        return read;
    }

  private:
    std::int64_t offset(std::int64_t i) const {
        LORATRAIN_CHECK(i >= 0 && i <= size(), path_, ": sample ", i);
        return offsets_[static_cast<std::size_t>(i)];
    }

    /// Other data say what to train on, or are misspelt: without them the wrong tokens are trained.
    void check_names(CappedProblems& problems) const {
        for (const std::string& name : root_names(file_.get())) {
            constexpr const char* known[] = {"tokens",        "labels",        "offsets",
                                             "weights",       rollout_keys[0], rollout_keys[1],
                                             adapter_step_key};
            const auto is_name = [&](const char* other) { return name == other; };
            if (std::any_of(std::begin(known), std::end(known), is_name)) continue;
            problems.add(cat(path_, ":", name), "is not known in a token file",
                         marks_documents(name) ? one_document_hint : layout_hint);
        }
    }

    /// Both or none.
    void open_rollouts(CappedProblems& problems) {
        const auto exists = [&](const char* key) {
            return H5Lexists(file_.get(), key, H5P_DEFAULT) > 0;
        };
        const bool has_steps = exists(adapter_step_key);
        if (!exists(rollout_keys[0]) && !exists(rollout_keys[1])) {
            if (!has_steps) return;
            problems.add(cat(path_, ":", adapter_step_key), cat("without ", rollout_keys[0]),
                         "only rollouts have it");
            return;
        }
        if (has_steps) adapter_steps_ = open_list(adapter_step_key, 4, problems);
        for (std::size_t i = 0; i < std::size(rollout_keys); ++i) {
            rollouts_[i] = open_list(rollout_keys[i], 0, problems);
        }
        if (!weights_) return;
        problems.add(path_ + ":weights", "are beside advantages, whose losses do not use them",
                     "a token's advantage is its weight: leave the weights out");
    }

    /// Of integers of so many bytes; 0: of floats.
    Hdf5Handle open_list(const char* name, std::size_t bytes, CappedProblems& problems) const {
        const std::string where = path_ + ":" + name;
        const bool exists = H5Lexists(file_.get(), name, H5P_DEFAULT) > 0;
        Hdf5Handle dataset;
        if (exists) dataset = {H5Dopen2(file_.get(), name, H5P_DEFAULT), H5Dclose};
        if (!dataset) {
            problems.add(where, exists ? "is not a readable dataset" : "dataset is missing",
                         layout_hint);
        } else if (bytes == 0 && !is_float(dataset.get())) {
            problems.add(where, "must hold floating-point numbers", layout_hint);
        } else if (bytes > 0 && !is_signed_integer(dataset.get(), bytes)) {
            problems.add(where, cat("must hold signed integers of ", 8 * bytes, " bits"),
                         layout_hint);
        } else if (dataset_shape(dataset.get()).size() != 1) {
            problems.add(where, "must have one axis", layout_hint);
        } else if (const std::string problem = storage_problem(dataset.get()); !problem.empty()) {
            problems.add(where, problem, "the file is damaged; make it again or copy it again");
        }
        return dataset;
    }

    void read_offsets(hid_t dataset, CappedProblems& problems) {
        const std::string in_offsets = path_ + ":offsets";
        const std::int64_t tokens = dataset_shape(tokens_.get())[0];
        const std::int64_t labels = labels_ ? dataset_shape(labels_.get())[0] : tokens;
        if (labels != tokens) {
            problems.add(path_ + ":labels", cat(tokens, " tokens but ", labels, " labels"),
                         layout_hint);
        }
        const std::int64_t weights = weights_ ? dataset_shape(weights_.get())[0] : tokens;
        if (weights != tokens) {
            problems.add(path_ + ":weights", cat(tokens, " tokens but ", weights, " weights"),
                         layout_hint);
        }
        for (std::size_t i = 0; i < std::size(rollout_keys) && is_rollouts(); ++i) {
            const std::int64_t values = dataset_shape(rollouts_[i].get())[0];
            if (values == tokens) continue;
            problems.add(cat(path_, ":", rollout_keys[i]),
                         cat(tokens, " tokens but ", values, " ", rollout_keys[i]), layout_hint);
        }
        offsets_.resize(static_cast<std::size_t>(dataset_shape(dataset)[0]));
        if (offsets_.size() < 2) {
            problems.add(path_, "has no samples", "is it the right file?");
            return;
        }
        read_hdf5_slab(dataset, H5T_NATIVE_INT64, 0, size() + 1, offsets_.data(), in_offsets);
        if (offsets_.front() != 0 || offsets_.back() != tokens) {
            problems.add(in_offsets,
                         cat("run from ", offsets_.front(), " to ", offsets_.back(),
                             ", must run from 0 to the ", tokens, " tokens"),
                         layout_hint);
        }
        for (std::int64_t i = 0; i < size(); ++i) check_offsets(i, tokens, problems);
        check_adapter_steps(problems);
    }

    void check_adapter_steps(CappedProblems& problems) const {
        if (!adapter_steps_) return;
        const std::int64_t count = dataset_shape(adapter_steps_.get())[0];
        if (count != size()) {
            problems.add(cat(path_, ":", adapter_step_key),
                         cat(size(), " samples but ", count, " steps"), layout_hint);
            return;
        }
        for (std::int64_t i = 0; i < size(); ++i) {
            const std::int32_t steps = adapter_step(i);
            if (steps >= 0) continue;
            problems.add(where(i), cat(adapter_step_key, " is ", steps), adapter_step_hint);
        }
    }

    std::int32_t adapter_step(std::int64_t sample) const {
        std::int32_t steps = 0;
        read_hdf5_slab(adapter_steps_.get(), H5T_NATIVE_INT32, sample, 1, &steps,
                       cat(path_, ":", adapter_step_key));
        return steps;
    }

    void check_offsets(std::int64_t sample, std::int64_t tokens, CappedProblems& problems) const {
        const std::int64_t begin = offset(sample);
        const std::int64_t end = offset(sample + 1);
        if (begin < 0 || begin > tokens || end < 0 || end > tokens) {
            problems.add(where(sample),
                         cat("runs from ", begin, " to ", end, " of the ", tokens, " tokens"),
                         layout_hint);
        } else if (begin == end) {
            problems.add(where(sample), "sample is empty", "leave it out");
        } else if (begin > end || end - begin > INT32_MAX) {
            problems.add(where(sample), cat("has ", end - begin, " tokens by its offsets"),
                         layout_hint);
        }
    }

    TokenSample read_range(std::int64_t first, std::int64_t count) const {
        const Hdf5Lock lock;
        TokenSample sample;
        sample.input_ids.resize(static_cast<std::size_t>(count));
        read_hdf5_slab(tokens_.get(), H5T_NATIVE_INT32, first, count, sample.input_ids.data(),
                       path_ + ":tokens");
        sample.labels = sample.input_ids;
        if (labels_) {
            read_hdf5_slab(labels_.get(), H5T_NATIVE_INT32, first, count, sample.labels.data(),
                           path_ + ":labels");
        }
        if (weights_) {
            sample.weights.resize(static_cast<std::size_t>(count));
            read_hdf5_slab(weights_.get(), H5T_NATIVE_FLOAT, first, count, sample.weights.data(),
                           path_ + ":weights");
        }
        if (!is_rollouts()) return sample;
        sample.advantages.resize(static_cast<std::size_t>(count));
        sample.logprobs.resize(static_cast<std::size_t>(count));
        float* const lists[] = {sample.advantages.data(), sample.logprobs.data()};
        for (std::size_t i = 0; i < std::size(lists); ++i) {
            read_hdf5_slab(rollouts_[i].get(), H5T_NATIVE_FLOAT, first, count, lists[i],
                           cat(path_, ":", rollout_keys[i]));
        }
        return sample;
    }

    /// Reads many samples at a time: a call of HDF5 costs more than a short sample.
    void scan(const SampleVisitor& visit, CappedProblems& problems) const {
        for (std::int64_t i = 0; i < size();) {
            std::int64_t end = i + 1;
            while (end < size() && offset(end + 1) - offset(i) <= scan_tokens) ++end;
            const TokenSample block = read_range(offset(i), offset(end) - offset(i));
            for (const std::int64_t start = offset(i); i < end; ++i) {
                visit_sample(i, block, offset(i) - start, visit, problems);
            }
        }
    }

    void visit_sample(std::int64_t i, const TokenSample& block, std::int64_t first,
                      const SampleVisitor& visit, CappedProblems& problems) const {
        const auto cut = [&](const auto& list) {
            return std::vector(list.begin() + first, list.begin() + first + length(i));
        };
        TokenSample sample{cut(block.input_ids), cut(block.labels)};
        if (weights_) sample.weights = cut(block.weights);
        if (is_rollouts()) {
            sample.advantages = cut(block.advantages);
            sample.logprobs = cut(block.logprobs);
        }
        const LineProblem rollout = rollout_problem(sample);
        const std::optional<std::size_t> bad = first_bad_weight(sample.weights);
        const auto negative = std::find_if(sample.input_ids.begin(), sample.input_ids.end(),
                                           [](std::int32_t id) { return id < 0; });
        if (negative != sample.input_ids.end()) {
            problems.add(
                where(i),
                cat("token ", negative - sample.input_ids.begin(), " is ", *negative, ": negative"),
                layout_hint);
        } else if (bad) {
            problems.add(where(i), cat("weight ", *bad, " is ", sample.weights[*bad]), weight_hint);
        } else if (!rollout.what.empty()) {
            problems.add(where(i), rollout.what, rollout.hint);
        } else if (visit) {
            settle_weights(sample);
            visit(where(i), sample);
        }
    }

    /// Of the first bad advantage or logprob; empty if all are good.
    static LineProblem rollout_problem(const TokenSample& sample) {
        const std::vector<float>* const lists[] = {&sample.advantages, &sample.logprobs};
        for (std::size_t i = 0; i < std::size(lists); ++i) {
            for (std::size_t t = 0; t < lists[i]->size(); ++t) {
                const double value = double{(*lists[i])[t]};
                const std::string fault = rollout_fault(rollout_keys[i], value);
                if (fault.empty()) continue;
                return {cat(rollout_keys[i], " ", t, " is ", value, ": ", fault), rollout_hint};
            }
        }
        return {};
    }

    std::string path_;
    std::string tokenizer_;
    Hdf5Handle file_;
    Hdf5Handle tokens_;
    Hdf5Handle labels_;
    Hdf5Handle weights_;
    Hdf5Handle rollouts_[2];  ///< by rollout_keys
    Hdf5Handle adapter_steps_;
    std::vector<std::int64_t> offsets_;
};

}  // namespace

std::unique_ptr<TokenFile> open_token_hdf5(const std::string& path, const SampleVisitor& visit) {
    return std::make_unique<TokenHdf5>(path, visit);
}

}  // namespace loratrain
