#include <algorithm>
#include <charconv>
#include <iterator>
#include <map>
#include <optional>
#include <set>
#include <utility>

#include "config/job_keys.h"
#include "config/job_yaml.h"
#include "config/yaml_tree.h"

namespace loratrain {

namespace {

/// One key of a resolved job; `item` is a dataset, an adapter or "".
struct Setting {
    std::string section;
    std::string item;
    std::string key;
    std::string value;

    std::string name() const {
        return section + (item.empty() ? "" : "." + item) + (key.empty() ? "" : "." + key);
    }
};

struct FlatJob {
    std::vector<Setting> settings;
    std::map<std::string, std::string> values;  ///< Setting::name() -> value
    std::vector<std::string> datasets;
    std::vector<std::string> adapters;

    bool has_item(const Setting& setting) const {
        return setting.item.empty() || items.contains(setting.section + "." + setting.item);
    }
    bool is_trial(const Setting& setting) const {
        return values.contains(setting.section + "." + setting.item + ".trial");
    }
    bool is_by_workers() const {
        const auto assignment = values.find("parallel.assignment");
        return assignment != values.end() && assignment->second != "joint";
    }
    std::set<std::string> items;  ///< "datasets.math", "adapters.math-r8"
};

std::string flat_text(const YamlNode& node) {
    const bool map = node.kind == YamlNode::Kind::map;
    if (!map && node.kind != YamlNode::Kind::list)
        return node.text.empty() ? empty_value : node.text;
    std::vector<std::string> words;
    for (const YamlNode& child : node.children) {
        words.push_back(map ? cat(child.key, ": ", flat_text(child)) : flat_text(child));
    }
    return cat(map ? "{" : "[", join(words, ", "), map ? "}" : "]");
}

/// Of an adapter: some keys of the section may change in a run that goes on, others not.
bool is_judged_by_keys(const std::string& section) {
    const std::vector<JobKey>& keys = job_keys();
    return std::any_of(keys.begin(), keys.end(), [&](const JobKey& key) {
        return key.section == section && key.resume != Resume::refused;
    });
}

void flatten(const YamlNode& map, const std::string& section, const std::string& item,
             FlatJob& job) {
    const auto add = [&](const std::string& key, const YamlNode& value) {
        job.settings.push_back({section, item, key, flat_text(value)});
        job.values.emplace(job.settings.back().name(), job.settings.back().value);
    };
    if (!item.empty()) job.items.insert(section + "." + item);
    for (const YamlNode& child : map.children) {
        const bool one = section != "adapters" || child.kind != YamlNode::Kind::map ||
                         !is_judged_by_keys(child.key);
        if (one) add(child.key, child);
        if (one) continue;
        for (const YamlNode& inner : child.children) add(child.key + "." + inner.key, inner);
    }
}

/// Datasets in the run's directory, as those of rollouts, move with it.
void name_run_dir(FlatJob& job) {
    const auto found = job.values.find("run.dir");
    if (found == job.values.end()) return;
    const std::string inside = found->second + "/";
    for (Setting& setting : job.settings) {
        if (setting.section != "datasets" || !setting.value.starts_with(inside)) continue;
        setting.value = "<run.dir>/" + setting.value.substr(inside.size());
        job.values[setting.name()] = setting.value;
    }
}

FlatJob flatten_job(const std::string& text, const std::string& source) {
    ProblemLog log;
    const std::optional<YamlNode> root = parse_yaml(text, {source, false}, log);
    if (!root || root->kind != YamlNode::Kind::map) {
        throw InputError(source, "is damaged: it holds no job",
                         "remove the file to continue from the checkpoints, which hold their job "
                         "too, or choose another run.dir");
    }
    log.throw_if_any();
    FlatJob job;
    for (const YamlNode& section : root->children) {
        if (section.key == "datasets") {
            for (const YamlNode& dataset : section.children) {
                job.datasets.push_back(dataset.key);
                flatten(dataset, section.key, dataset.key, job);
            }
        } else if (section.key == "adapters") {
            for (const YamlNode& adapter : section.children) {
                const YamlNode* name = adapter.find("name");
                job.adapters.push_back(name == nullptr ? "" : name->text);
                flatten(adapter, section.key, job.adapters.back(), job);
            }
        } else {
            flatten(section, section.key, "", job);
        }
    }
    name_run_dir(job);
    return job;
}

bool grows(const std::string& before, const std::string& now) {
    const auto number = [](const std::string& text) {
        double value = 0.0;
        std::from_chars(text.data(), text.data() + text.size(), value);
        return value;
    };
    return number(now) > number(before);
}

/// Of a section of the job file; `key` may be of a section of an adapter, as rewards.timeout.
const JobKey* known_key(const std::string& section, const std::string& key) {
    const bool adapter = section == "adapters";
    const bool dataset = section == "datasets";
    const std::size_t dot = key.find('.');
    if (dot != std::string::npos) return find_job_key(key.substr(0, dot), key.substr(dot + 1));
    return find_job_key(adapter ? adapter_section : dataset ? dataset_section : section, key);
}

/// Of a key that only older versions have, what its section says.
Resume resume_of(const Setting& setting) {
    const JobKey* key = known_key(setting.section, setting.key);
    if (key == nullptr) key = find_job_key("", setting.section);
    return key == nullptr ? Resume::refused : key->resume;
}

bool is_same_backend(const std::string& before, const std::string& now,
                     const BackendsOfAuto& backends) {
    const bool was_auto = before == "auto";
    return was_auto ? backends.before == now : now == "auto" && backends.now == before;
}

std::vector<std::string> intersection(const std::vector<std::string>& words,
                                      const std::vector<std::string>& others) {
    const std::set<std::string> wanted(others.begin(), others.end());
    std::vector<std::string> common;
    std::copy_if(words.begin(), words.end(), std::back_inserter(common),
                 [&](const std::string& word) { return wanted.contains(word); });
    return common;
}

void list_removed(const FlatJob& before, const FlatJob& now, std::vector<std::string>& lines) {
    for (const std::string& item : before.items) {
        if (!now.items.contains(item)) lines.push_back(item + ": removed");
    }
}

/// What comes after all old items starts afresh; between them it would renumber those behind it.
void list_added(const std::string& section, const std::vector<std::string>& before,
                const std::vector<std::string>& now, JobDifference& difference) {
    const std::set<std::string> known(before.begin(), before.end());
    const auto is_known = [&](const std::string& item) { return known.contains(item); };
    const auto end_of_known = std::find_if(now.rbegin(), now.rend(), is_known).base();
    for (auto item = now.begin(); item != now.end(); ++item) {
        if (is_known(*item)) continue;
        const std::string line = cat(section, ".", *item, ": added");
        if (item >= end_of_known) {
            difference.harmless.push_back(line);
        } else {
            difference.harmful.push_back(line + ", not at the end");
        }
    }
}

void compare_order(const char* section, const std::vector<std::string>& before,
                   const std::vector<std::string>& now, std::vector<std::string>& lines) {
    const std::vector<std::string> old_order = intersection(before, now);
    const std::vector<std::string> new_order = intersection(now, before);
    if (old_order == new_order) return;
    lines.push_back(cat(section, ": order ", join(old_order, ", "), " -> ", join(new_order, ", ")));
}

/// `now`: a value, or "" where the key is not set before or now.
bool may_change(const Setting& setting, const std::string& now, const FlatJob& job,
                const BackendsOfAuto& backends) {
    switch (resume_of(setting)) {
        case Resume::refused:
            return false;
        case Resume::allowed:
            return true;
        case Resume::longer:
            return grows(setting.value, now) && !job.is_trial(setting) && !job.is_by_workers();
        case Resume::same_backend:
            return !now.empty() && is_same_backend(setting.value, now, backends);
    }
    return false;
}

}  // namespace

std::vector<KeyValues> adapter_values(const Job& job) {
    std::vector<KeyValues> values;
    for (const Setting& setting : flatten_job(to_yaml(job), "job").settings) {
        if (setting.section != "adapters") continue;
        if (setting.key == "name") values.emplace_back();
        values.back().emplace(setting.key, setting.value);
    }
    return values;
}

JobDifference compare_jobs(const std::string& before, const std::string& now,
                           const std::string& path, const BackendsOfAuto& backends) {
    const FlatJob old_job = flatten_job(before, path);
    const FlatJob new_job = flatten_job(now, "now");
    JobDifference difference;
    for (const Setting& setting : old_job.settings) {
        const auto found = new_job.values.find(setting.name());
        if (found != new_job.values.end() && found->second != setting.value) {
            const bool harmless = may_change(setting, found->second, new_job, backends);
            auto& lines = harmless ? difference.harmless : difference.harmful;
            lines.push_back(setting.name() + ": " + setting.value + " -> " + found->second);
        } else if (found == new_job.values.end() && new_job.has_item(setting)) {
            const bool harmless = may_change(setting, "", new_job, {});
            auto& lines = harmless ? difference.harmless : difference.harmful;
            lines.push_back(setting.name() + ": " + setting.value + " -> not set");
        }
    }
    for (const Setting& setting : new_job.settings) {
        if (!old_job.has_item(setting) || old_job.values.contains(setting.name())) continue;
        const bool harmless =
            may_change({setting.section, setting.item, setting.key, ""}, "", new_job, {});
        auto& lines = harmless ? difference.harmless : difference.harmful;
        lines.push_back(setting.name() + ": not set -> " + setting.value);
    }
    list_removed(old_job, new_job, difference.harmful);
    list_added("datasets", old_job.datasets, new_job.datasets, difference);
    list_added("adapters", old_job.adapters, new_job.adapters, difference);
    compare_order("datasets", old_job.datasets, new_job.datasets, difference.harmful);
    compare_order("adapters", old_job.adapters, new_job.adapters, difference.harmful);
    return difference;
}

}  // namespace loratrain
