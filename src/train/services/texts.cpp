#include "train/services/texts.h"

#include <algorithm>
#include <chrono>

#include "base/log.h"
#include "io/files.h"
#include "io/run_files/metrics_file.h"
#include "train/generation.h"

namespace loratrain {

namespace {

constexpr double most_seconds_of_texts = 10.0;  // that who stops the run waits for

}  // namespace

bool TextService::has_texts(AdapterId adapter) const {
    return worker_.parts.job.eval.generate.wanted() && worker_.adapters.has_eval_samples(adapter);
}

int TextService::waiting(std::int32_t round) const {
    const std::vector<AdapterId> adapters = worker_.adapters.in_stream();
    return static_cast<int>(std::count_if(adapters.begin(), adapters.end(), [&](AdapterId a) {
        return has_texts(a) && !worker_.adapters.trains_beyond(a, round);
    }));
}

/// At the first end it is not known how long they take.
bool TextService::needs_drain(std::int32_t round) {
    return waiting(round) * seconds_.value_or(most_seconds_of_texts) >= most_seconds_of_texts;
}

void TextService::write(const std::vector<AdapterId>& trained) {
    for (const AdapterId a : trained) {
        const bool ended = is_exportable(worker_.state(a).status) && worker_.sweep.is_wanted(a);
        if (!ended || !has_texts(a)) continue;
        const auto start = std::chrono::steady_clock::now();
        const std::vector<GeneratedText> texts = worker_.ranks.generate(a);
        const std::string& name = worker_.job(a).name;
        write_text_atomic(
            cat(worker_.parts.job.run.dir, "/adapters/", name, "/", generations_file_name),
            to_text(texts));
        seconds_ = seconds_since(start);
        log::info(texts_notice(name, texts, *seconds_));
    }
}

}  // namespace loratrain
