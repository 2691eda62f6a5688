#include "config/job_yaml.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <limits>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "config/adapter_reader.h"
#include "config/dataset_reader.h"
#include "config/job_sections.h"
#include "config/key_reader.h"
#include "config/rewards_reader.h"
#include "config/section_reader.h"
#include "config/sweep_space.h"
#include "config/yaml_reader.h"
#include "config/yaml_tree.h"

namespace loratrain {

namespace fs = std::filesystem;

namespace {

using Kind = YamlNode::Kind;

std::optional<YamlNode> override_value(const Override& entry, ProblemLog& log) {
    const YamlSource source{"--set " + entry.key, true};
    if (!entry.value.empty()) return parse_yaml(entry.value, source, log);
    YamlNode empty;
    empty.kind = Kind::scalar;
    empty.place = source.place(0);
    empty.quoted = true;
    return empty;
}

void make_map(YamlNode& node) {
    if (node.kind == Kind::null) node.kind = Kind::map;
}

void remove_file_value(YamlNode& map, const std::string& key) {
    std::erase_if(map.children, [&](const YamlNode& child) {
        return child.key == key && !child.key_place.on_command_line;
    });
}

void set_child(YamlNode& map, const std::string& key, YamlNode value) {
    make_map(map);
    if (map.kind != Kind::map) return;
    value.key = key;
    value.key_place = value.place;
    if (key == "max_steps") remove_file_value(map, "num_train_epochs");
    if (key == "num_train_epochs") remove_file_value(map, "max_steps");
    if (YamlNode* child = map.find(key)) {
        *child = std::move(value);
    } else {
        map.children.push_back(std::move(value));
    }
}

YamlNode& section_of(YamlNode& root, const std::string& name, const Place& place) {
    make_map(root);
    if (YamlNode* section = root.find(name)) return *section;
    YamlNode section;
    section.kind = Kind::map;
    section.key = name;
    section.place = section.key_place = place;
    root.children.push_back(std::move(section));
    return root.children.back();
}

std::string item_name(const YamlNode& section, const YamlNode& item) {
    if (section.kind == Kind::map) return item.key;
    const YamlNode* name = item.find("name");
    return name == nullptr ? "" : name->text;
}

/// A dataset or an adapter, by its name.
YamlNode* find_item(YamlNode& section, const std::string& name, const Place& place,
                    ProblemLog& log) {
    std::vector<std::string> names;
    for (YamlNode& item : section.children) {
        names.push_back(item_name(section, item));
        if (names.back() == name) return &item;
    }
    log.add(place, "the job has no '" + name + "' in " + section.key, log.hint_among(name, names));
    return nullptr;
}

void set_in_item(YamlNode& section, const std::string& rest, YamlNode value, ProblemLog& log) {
    const std::size_t dot = rest.rfind('.');
    if (dot == std::string::npos) {
        log.add(value.place, "names no key of '" + rest + "'",
                "write --set " + section.key + "." + rest + ".KEY=VALUE");
        return;
    }
    if (YamlNode* item = find_item(section, rest.substr(0, dot), value.place, log)) {
        set_child(*item, rest.substr(dot + 1), std::move(value));
    }
}

/// Through mappings in mappings, as in sweep.space.r and cluster.between_hosts.microseconds.
void set_below(YamlNode& map, const std::string& path, YamlNode value) {
    const std::size_t dot = path.find('.');
    if (dot == std::string::npos) return set_child(map, path, std::move(value));
    const Place place = value.place;
    set_below(section_of(map, path.substr(0, dot), place), path.substr(dot + 1), std::move(value));
}

/// Writes the overrides into the tree of the job file, in their order. Values that they set have
/// the place "--set key". Setting max_steps removes num_train_epochs of the file, and the other way
/// round. An unknown dataset or adapter is logged here; the reader logs unknown keys.
void apply_overrides(YamlNode& root, const std::vector<Override>& overrides, ProblemLog& log) {
    for (const Override& entry : overrides) {
        std::optional<YamlNode> value = override_value(entry, log);
        if (!value) continue;
        const std::size_t dot = entry.key.find('.');
        if (dot == std::string::npos) {
            set_child(root, entry.key, std::move(*value));
            continue;
        }
        const std::string section_name = entry.key.substr(0, dot);
        const std::string rest = entry.key.substr(dot + 1);
        YamlNode& section = section_of(root, section_name, value->place);
        if (section_name == "datasets" || section_name == "adapters") {
            set_in_item(section, rest, std::move(*value), log);
        } else if (section_name == "sweep" || section_name == "cluster") {
            set_below(section, rest, std::move(*value));
        } else {
            set_child(section, rest, std::move(*value));
        }
    }
}

/// Throws InputError for what must not be opened: pipes may never end, devices neither.
void check_is_job_file(const std::string& path) {
    std::error_code error;
    const fs::file_status status = fs::status(path, error);
    const char* hint = "give the path of a YAML file";
    if (fs::is_directory(status)) throw InputError(path, "is a folder, not a job file", hint);
    if (!fs::exists(status)) return;
    if (!fs::is_regular_file(status)) throw InputError(path, "is not a regular file", hint);
    const std::uintmax_t bytes = fs::file_size(path, error);
    if (!error && bytes > max_yaml_bytes) {
        throw InputError(path, human_bytes(bytes) + " is too large for a job file", hint);
    }
}

std::string read_text(const std::string& path) {
    check_is_job_file(path);
    std::ifstream file(path, std::ios::binary);
    if (!file) {
        throw InputError(path, cat("cannot open the job file: ", std::strerror(errno)),
                         "check the path and its permissions");
    }
    return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

YamlNode read_tree(const std::string& path, ProblemLog& log) {
    std::optional<YamlNode> root = parse_yaml(read_text(path), {path, false}, log);
    if (root && root->kind == YamlNode::Kind::null) {
        log.add(root->place, "the job file is empty",
                "it needs at least model, run, datasets and adapters");
        root.reset();
    }
    if (!root) log.throw_if_any();
    return std::move(*root);
}

/// Whether any adapter of the list is a trial already, as in resolved.yaml.
bool lists_trials(const YamlNode& root) {
    const YamlNode* list = root.find("adapters");
    return list != nullptr &&
           std::any_of(list->children.begin(), list->children.end(), [](const YamlNode& adapter) {
               const YamlNode* trial = adapter.find("trial");
               return trial != nullptr && trial->text == "true";
           });
}

}  // namespace

int read_peer_timeout(const std::string& path, const std::vector<Override>& overrides) {
    RunJob run;
    try {
        ProblemLog log;
        YamlNode root = read_tree(path, log);
        apply_overrides(root, overrides, log);
        const ReadContext context{log};
        SectionReader top(&root, root.place, "", context);
        top.section("run").read("peer_timeout", run.peer_timeout, at_least(0));
    } catch (const std::exception&) {
        return RunJob{}.peer_timeout;  // read_job() says what is wrong
    }
    return run.peer_timeout;
}

Job read_job(const std::string& path, const std::vector<Override>& overrides) {
    ProblemLog log;
    YamlNode root = read_tree(path, log);
    apply_overrides(root, overrides, log);

    Job job;
    job.path = path;
    ReadContext context{log, folder_of(path)};
    context.paths = &job.given_paths;
    SectionReader top(&root, root.place, "", context);
    read_first_sections(top, job);
    job.datasets = read_datasets(top);
    context.set_datasets(job.datasets);
    std::optional<SweepSpace> space;
    Place sweep_place = root.place;
    if (top.has("sweep")) {
        SectionReader sweep = top.section("sweep");
        sweep_place = sweep.place();
        const bool trials_elsewhere = lists_trials(root) || sweep.has("wait_minutes");
        space = read_sweep_space(sweep, job.run.seed, trials_elsewhere);
        KeyReader reader(sweep);
        keys(reader, job.sweep.emplace());
        sweep.finish();
    }
    AdapterList list = read_adapters(top, {job.run.seed, nullptr, {}, space ? &*space : nullptr});
    job.defaults = std::move(list.defaults);
    job.adapters = std::move(list.adapters);
    read_last_sections(top, job);
    if (job.sweep) check_sweep(job, sweep_place, log);
    own_rollouts(job, root.place, log);
    top.finish();
    log.throw_if_any();
    return job;
}

}  // namespace loratrain
