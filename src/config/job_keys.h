#pragma once

#include <span>
#include <string>
#include <vector>

namespace loratrain {

/// A key of the job file: what readers may ask for (yaml_reader.h), and what `loratrain --keys`
/// tells.
struct JobKey {
    /// "" = the top level; "datasets", "adapters", "deployment", "kwargs": of one of them, the
    /// last two those in `parallel` and lr_scheduler_kwargs.
    const char* section;
    const char* key;
    const char* meaning;
    /// How the default is written; nullptr = the value of a job that does not say it.
    const char* default_words = nullptr;
};
std::span<const JobKey> job_keys();

/// The section of job_keys() that a section of the file reads: "model", "datasets.math" and
/// "adapters[2]" without what follows, "parallel.deployment[0]" as "deployment", `defaults` as the
/// adapters. "datasets" alone holds names.
std::string key_section(const std::string& path);

bool is_job_key(const std::string& section, const std::string& key);
/// Where a key stands, for messages: "datasets.NAME.path", "r of adapters or defaults".
std::string key_place(const std::string& section, const std::string& key);
/// Sections that have a key of this name.
std::vector<std::string> sections_with(const std::string& key);

/// A key as people read of it.
struct KeyRow {
    std::string section;  ///< "" = the top level, "datasets.NAME", "adapters, defaults", ...
    std::string key;
    std::string default_value;
    std::string meaning;                 ///< Markdown
    std::vector<std::string> elsewhere;  ///< names that others have for it (foreign_keys.h)
};
std::vector<KeyRow> key_rows();

/// A table of all keys in Markdown: default, meaning, and names elsewhere (foreign_keys.h).
std::string keys_text();

}  // namespace loratrain
