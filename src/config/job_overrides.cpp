#include "config/job_overrides.h"

#include <algorithm>
#include <optional>
#include <string>
#include <utility>

#include "config/yaml_reader.h"

namespace loratrain {

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

}  // namespace

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

}  // namespace loratrain
