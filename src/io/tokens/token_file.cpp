#include "io/tokens/token_file.h"

#include <algorithm>
#include <utility>

#include "base/error.h"
#include "io/files.h"
#include "io/tokens/token_formats.h"

namespace loratrain {

namespace {

void append_bytes(const std::string& text, bool trained, TokenSample& sample) {
    for (const char c : text) {
        const auto id = static_cast<std::int32_t>(static_cast<unsigned char>(c));
        sample.input_ids.push_back(id);
        sample.labels.push_back(trained ? id : no_target);
    }
}

class JoinedTokens final : public TokenFile {
  public:
    explicit JoinedTokens(std::vector<std::unique_ptr<TokenFile>> files)
        : files_(std::move(files)) {
        for (const auto& file : files_) {
            LORATRAIN_CHECK(file->group_samples() == group_samples() &&
                                file->is_labelled() == is_labelled() &&
                                file->is_rollouts() == is_rollouts(),
                            "files of different kinds");
            firsts_.push_back(size_);
            size_ += file->size();
        }
    }

    std::int64_t size() const override { return size_; }
    std::int64_t group_samples() const override { return files_.front()->group_samples(); }
    bool is_labelled() const override { return files_.front()->is_labelled(); }
    bool is_rollouts() const override { return files_.front()->is_rollouts(); }
    std::int64_t length(std::int64_t sample) const override {
        const auto [file, own] = place(sample);
        return file->length(own);
    }
    TokenSample read(std::int64_t sample) const override {
        const auto [file, own] = place(sample);
        return file->read(own);
    }
    std::string where(std::int64_t sample) const override {
        const auto [file, own] = place(sample);
        return file->where(own);
    }

  private:
    std::pair<const TokenFile*, std::int64_t> place(std::int64_t sample) const {
        const auto next = std::upper_bound(firsts_.begin(), firsts_.end(), sample);
        const auto file = static_cast<std::size_t>(next - firsts_.begin() - 1);
        return {files_.at(file).get(), sample - firsts_[file]};
    }

    std::vector<std::unique_ptr<TokenFile>> files_;
    std::vector<std::int64_t> firsts_;
    std::int64_t size_ = 0;
};

}  // namespace

TokenSample tokenize_bytes(const std::string& prompt, const std::string& completion) {
    TokenSample sample{{byte_bos}, {no_target}};
    append_bytes(prompt, false, sample);
    append_bytes(completion, true, sample);
    sample.input_ids.push_back(byte_eos);
    sample.labels.push_back(byte_eos);
    return sample;
}

std::unique_ptr<TokenFile> open_token_file(const std::string& path, bool bytes,
                                           const SampleVisitor& visit) {
    if (path.ends_with(".jsonl")) return open_token_jsonl(path, bytes, visit);
    if (!path.ends_with(".h5") && !path.ends_with(".hdf5")) {
        throw InputError(path, "has an unknown ending",
                         "give a .jsonl, .h5 or .hdf5 file" +
                             download_hint(path, "--repo-type dataset ",
                                           "give what scripts/prepare_data.py makes of it"));
    }
    if (bytes) {
        throw InputError(path, "holds tokens, which the bytes tokenizer cannot read",
                         "give a .jsonl file of text, or remove tokenizer: bytes");
    }
    return open_token_hdf5(path, visit);
}

std::unique_ptr<TokenFile> join_token_files(std::vector<std::unique_ptr<TokenFile>> files) {
    LORATRAIN_CHECK(!files.empty(), "no files");
    if (files.size() == 1) return std::move(files.front());
    return std::make_unique<JoinedTokens>(std::move(files));
}

}  // namespace loratrain
