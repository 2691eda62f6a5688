#include "io/tokens/token_file.h"

#include "base/error.h"
#include "io/hub_name.h"
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

}  // namespace loratrain
