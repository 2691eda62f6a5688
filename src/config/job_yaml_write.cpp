#include <algorithm>

#include "base/error.h"
#include "config/job_sections.h"
#include "config/job_yaml.h"
#include "config/key_writer.h"

namespace loratrain {

void KeyWriter::begin(const std::string& key, bool in_line) {
    out_ << YAML::Key;
    put_text(key);
    out_ << YAML::Value;
    if (in_line) out_ << YAML::Flow;
}

/// yaml-cpp writes a carriage return as it is, and reads it as the end of a line.
void KeyWriter::put_text(const std::string& text) {
    const bool controls =
        std::ranges::any_of(text, [](char c) { return static_cast<unsigned char>(c) < ' '; });
    if (controls) out_ << YAML::DoubleQuoted;
    out_ << text;
}

void KeyWriter::put(const std::string& key, const std::string& text) {
    begin(key, false);
    put_text(text);
}

void KeyWriter::put_list(const char* key, const std::vector<std::string>& words) {
    begin(key, true);
    out_ << YAML::BeginSeq;
    for (const std::string& word : words) put_text(word);
    out_ << YAML::EndSeq;
}

void KeyWriter::see(const SeenKey& key) {
    if (key.info.written && key.info.used && key.text) put(key.name, *key.text);
}

void KeyWriter::section(const char* name, std::vector<DatasetJob>& datasets, const char* /*help*/,
                        const KeyInfo& /*info*/) {
    put_map(name, false, [&] {
        for (DatasetJob& dataset : datasets) {
            put_map(dataset.name, false, [&] { keys(*this, dataset); });
        }
    });
}

void KeyWriter::section(const char* name, std::vector<AdapterJob>& adapters, const char* /*help*/,
                        const KeyInfo& /*info*/) {
    put_maps(name, false, adapters, [&](AdapterJob& adapter) {
        LossJob& loss = adapter.loss;
        if (loss.has_cpo_alpha()) loss.cpo_alpha = loss.nll_weight();
        if (loss.has_beta()) loss.beta = loss.beta_or_usual();
        keys(*this, adapter);
    });
}

std::string to_yaml(const Job& job) {
    Job all = job;
    KeyWriter out(job);
    return out.text([&] { keys(out, all); });
}

}  // namespace loratrain
