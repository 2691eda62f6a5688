#pragma once

#include <span>
#include <string>
#include <vector>

#include "config/job_key.h"

namespace loratrain {

inline constexpr const char* adapter_section = "adapters, defaults";
inline constexpr const char* dataset_section = "datasets.NAME";

/// The list of all keys of a job file, and its texts for `loratrain --keys`.

/// A key of the job file (job_sections.h, adapter_keys.h).
struct JobKey {
    std::string section;  ///< "" = the top level, "model", dataset_section, "eval.generate", ...
    std::string key;
    std::string default_value;  ///< in words; "" of sections
    std::string meaning;        ///< Markdown
    Resume resume;              ///< for a section: of all its keys
    bool whole;                 ///< values are whole numbers
    bool varies;                ///< for adapters: a sweep may vary it
    std::string in_names;       ///< for adapters: its abbreviation in names of trials
};

/// All keys. Those of a section come in the order of the resolved job, then its inner sections.
const std::vector<JobKey>& job_keys();

/// The key of this name in the section; nullptr = there is none.
const JobKey* find_job_key(const std::string& section, const std::string& key);
/// The place of a key for messages: "datasets.NAME.path", "r of an adapter or of defaults".
std::string key_place(const std::string& section, const std::string& key);
/// Sections that have a key of this name.
std::vector<std::string> sections_with(const std::string& key);

/// Keys that match `part`; throws InputError if there is none. Upper and lower case are the same.
/// - "": all keys;
/// - the name of a section: all its keys;
/// - a text with one of *?[: a glob for a whole name;
/// - any other text: keys with it in their name or in a name elsewhere (foreign_keys.h); if it has
///   a dot, also in "section.name".
std::vector<JobKey> find_job_keys(const std::string& part);

/// Text for a terminal of 80 columns: name, default, meaning, and names elsewhere.
std::string keys_text(const std::vector<JobKey>& rows);
/// The rows as a table in Markdown, without the sections of the top level: the table of
/// jobs/keys.md.
std::string keys_markdown(const std::vector<JobKey>& rows);

}  // namespace loratrain
