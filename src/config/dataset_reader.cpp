#include "config/dataset_reader.h"

#include <algorithm>
#include <filesystem>
#include <map>
#include <set>

#include "config/job_sections.h"
#include "config/key_reader.h"
#include "config/key_writer.h"

namespace loratrain {

namespace {

constexpr double largest_weight_of_file = 1000.0;

/// A file of a list: its path, or where `weighted` a mapping of path, weight and name.
DataFile read_file(const YamlNode& item, const std::string& where, bool weighted,
                   const ReadContext& context) {
    YamlNode map = item;
    if (item.kind != YamlNode::Kind::map || !weighted) {
        map = {};
        map.kind = YamlNode::Kind::map;
        map.place = item.place;
        map.children.push_back(item);
        map.children.back().key = "path";
        map.children.back().key_place = item.place;
    }
    SectionReader section(&map, item.place, where, context);
    KeyReader reader(section);
    DataFile file;
    keys(reader, file);
    if (file.weight > largest_weight_of_file) {
        section.problem(section.find("weight")->place, "weight",
                        format_exact(file.weight) + " is out of range",
                        cat("give at most ", largest_weight_of_file));
    }
    section.finish();
    return file;
}

std::string stem_of(const std::string& path, bool with_folder) {
    const std::filesystem::path whole(path);
    const std::string stem = whole.stem().string();
    return with_folder ? whole.parent_path().filename().string() + "/" + stem : stem;
}

/// Those without a name get that of their path: "math", or where several would be alike
/// "school/math".
void name_files(std::vector<DataFile>& files) {
    std::map<std::string, int> stems;
    for (const DataFile& file : files) ++stems[stem_of(file.path, false)];
    for (DataFile& file : files) {
        if (!file.name.empty()) continue;
        file.name = stem_of(file.path, stems[stem_of(file.path, false)] > 1);
    }
}

std::vector<DataFile> read_file_list(SectionReader& section, const char* key, bool weighted) {
    const YamlNode& list = *section.find(key);
    std::vector<DataFile> files;
    for (std::size_t i = 0; i < list.children.size(); ++i) {
        const std::string where = cat(section.path(), ".", key, "[", i, "]");
        files.push_back(read_file(list.children[i], where, weighted, section.context()));
    }
    if (files.empty()) section.problem(list.place, key, "is an empty list", "give files");
    name_files(files);
    std::set<std::string> names;
    for (const DataFile& file : files) {
        if (names.insert(file.name).second) continue;
        section.problem(list.place, key, cat("has two files named '", file.name, "'"),
                        "give them names: files: [{path: a.jsonl, name: a}, ...]");
        break;
    }
    return files;
}

/// One file or a list of them; `path` is the first.
void read_files(SectionReader& section, const char* key, std::string& path,
                std::vector<DataFile>& files) {
    const YamlNode* node = section.find(key);
    if (node == nullptr || node->kind != YamlNode::Kind::list) {
        section.read_path(key, path);
        return;
    }
    files = read_file_list(section, key, false);
    if (!files.empty()) path = files.front().path;
    if (files.size() < 2) files.clear();
}

void read_train_files(SectionReader& section, DatasetJob& dataset) {
    const YamlNode* list = section.find("files");
    if (list == nullptr) {
        section.require("path", "give a .jsonl or .h5 file");
        return read_files(section, "path", dataset.path, dataset.files);
    }
    if (section.has("path")) {
        section.problem(list->key_place, "files", "is given together with path",
                        "keep one of the two");
    }
    if (list->kind != YamlNode::Kind::list) {
        section.problem(list->place, "files", "is not a list",
                        "write files: [{path: a.jsonl, weight: 2}, {path: b.jsonl}]");
        return;
    }
    dataset.files = read_file_list(section, "files", true);
    if (!dataset.files.empty()) dataset.path = dataset.files.front().path;
    if (dataset.files.size() == 1 && dataset.files.front().weight == 1.0) dataset.files.clear();
}

void write_train_files(KeyWriter& out, const DatasetJob& dataset) {
    if (dataset.files.empty()) return out.put("path", written_path(dataset.path));
    std::vector<DataFile> files = dataset.files;
    out.put_maps("files", false, files, [&](DataFile& file) { keys(out, file); });
}

void write_eval_files(KeyWriter& out, const DatasetJob& dataset) {
    if (dataset.eval_files.empty()) return out.put("eval_path", written_path(dataset.eval_path));
    std::vector<std::string> paths;
    for (const std::string& path : dataset.eval_paths()) paths.push_back(written_path(path));
    out.put_list("eval_path", paths);
}

DatasetJob read_dataset(SectionReader section, const std::string& name) {
    DatasetJob dataset;
    dataset.name = name;
    KeyReader reader(section);
    keys(reader, dataset);
    if (!dataset.eval_path.empty() && section.has("eval_split")) {
        section.problem(section.find("eval_split")->place, "eval_split",
                        "does not go with eval_path", "keep one of the two");
    }
    section.finish();
    return dataset;
}

std::vector<DatasetJob> read_dataset_map(const YamlNode& node, const ReadContext& context) {
    std::vector<DatasetJob> datasets;
    if (node.kind != YamlNode::Kind::map) return datasets;
    for (const YamlNode& child : node.children) {
        const SectionReader section(&child, child.place, "datasets." + child.key, context,
                                    dataset_section);
        datasets.push_back(read_dataset(section, child.key));
    }
    return datasets;
}

}  // namespace

const OwnKey<DatasetJob> train_files_key{read_train_files, write_train_files};
const OwnKey<DatasetJob> eval_files_key{[](SectionReader& section, DatasetJob& dataset) {
                                            read_files(section, "eval_path", dataset.eval_path,
                                                       dataset.eval_files);
                                        },
                                        write_eval_files};

std::vector<DatasetJob> read_datasets(SectionReader& top) {
    SectionReader section = top.section("datasets");
    const YamlNode* node = top.find("datasets");
    if (node == nullptr || (node->kind == YamlNode::Kind::map && node->children.empty()) ||
        node->kind == YamlNode::Kind::null) {
        top.context().log.add(
            section.place(), node == nullptr ? "datasets: is missing" : "datasets: is empty",
            "name at least one dataset, as in datasets: {math: {path: math.jsonl}}");
        return {};
    }
    return read_dataset_map(*node, top.context());
}

std::vector<DatasetJob> read_added_datasets(SectionReader& top,
                                            std::span<const DatasetJob> others) {
    top.section("datasets");  // a mapping
    const YamlNode* node = top.find("datasets");
    if (node == nullptr) return {};
    for (const YamlNode& child : node->children) {
        const bool taken = std::any_of(others.begin(), others.end(), [&](const DatasetJob& other) {
            return other.name == child.key;
        });
        if (!taken) continue;
        top.context().log.add(child.key_place,
                              "datasets." + child.key + ": the run has a dataset of this name",
                              "leave it out to use that one, or choose another name");
    }
    return read_dataset_map(*node, top.context());
}

void split_by_default(const EvalSplit& split, std::vector<DatasetJob>& datasets) {
    for (DatasetJob& dataset : datasets) {
        if (!dataset.has_eval() && !dataset.grows()) dataset.eval_split = split;
    }
}

}  // namespace loratrain
