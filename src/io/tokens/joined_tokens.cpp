#include "io/tokens/joined_tokens.h"

#include <algorithm>
#include <utility>

#include "base/error.h"

namespace loratrain {

namespace {

class JoinedTokens final : public TokenFile {
  public:
    explicit JoinedTokens(std::vector<std::unique_ptr<TokenFile>> files)
        : files_(std::move(files)) {
        for (const auto& file : files_) {
            LORATRAIN_CHECK(
                file->group_samples() == group_samples() && file->is_labelled() == is_labelled(),
                "files of unlike kinds");
            firsts_.push_back(size_);
            size_ += file->size();
        }
    }

    std::int64_t size() const override { return size_; }
    std::int64_t group_samples() const override { return files_.front()->group_samples(); }
    bool is_labelled() const override { return files_.front()->is_labelled(); }
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

std::unique_ptr<TokenFile> join_token_files(std::vector<std::unique_ptr<TokenFile>> files) {
    LORATRAIN_CHECK(!files.empty(), "no files");
    if (files.size() == 1) return std::move(files.front());
    return std::make_unique<JoinedTokens>(std::move(files));
}

}  // namespace loratrain
