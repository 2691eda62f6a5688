#include "config/dataset_reader.h"

#include <algorithm>
#include <filesystem>
#include <map>
#include <set>

namespace loratrain {

namespace {

constexpr double largest_weight_of_file = 1000.0;

/// A file of a list: its path, or where `weighted` a mapping of path, weight and name.
DataFile read_file(const YamlNode& item, const std::string& where, const std::string& folder,
                   bool weighted, ProblemLog& log) {
    YamlNode keys = item;
    if (item.kind != YamlNode::Kind::map || !weighted) {
        keys = {};
        keys.kind = YamlNode::Kind::map;
        keys.place = item.place;
        keys.children.push_back(item);
        keys.children.back().key = "path";
        keys.children.back().key_place = item.place;
    }
    SectionReader section(&keys, item.place, where, log);
    DataFile file;
    section.require("path", "give a .jsonl or .h5 file");
    section.read_path("path", file.path, folder);
    section.read("name", file.name);
    section.read("weight", file.weight, above(0.0));
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

std::vector<DataFile> read_file_list(SectionReader& section, const char* key, bool weighted,
                                     const std::string& folder, ProblemLog& log) {
    const YamlNode& list = *section.find(key);
    std::vector<DataFile> files;
    for (std::size_t i = 0; i < list.children.size(); ++i) {
        const std::string where = cat(section.path(), ".", key, "[", i, "]");
        files.push_back(read_file(list.children[i], where, folder, weighted, log));
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
void read_files(SectionReader& section, const char* key, const std::string& folder, ProblemLog& log,
                std::string& path, std::vector<DataFile>& files) {
    const YamlNode* node = section.find(key);
    if (node == nullptr || node->kind != YamlNode::Kind::list) {
        section.read_path(key, path, folder);
        return;
    }
    files = read_file_list(section, key, false, folder, log);
    if (!files.empty()) path = files.front().path;
    if (files.size() < 2) files.clear();
}

void read_train_files(SectionReader& section, const std::string& folder, ProblemLog& log,
                      DatasetJob& dataset) {
    const YamlNode* list = section.find("files");
    if (list == nullptr) {
        section.require("path", "give a .jsonl or .h5 file");
        return read_files(section, "path", folder, log, dataset.path, dataset.files);
    }
    if (section.has("path")) {
        section.problem(list->key_place, "files", "is given together with path",
                        "keep one of the two");
    }
    if (list->kind != YamlNode::Kind::list) {
        section.problem(list->place, "files", "is no list",
                        "write files: [{path: a.jsonl, weight: 2}, {path: b.jsonl}]");
        return;
    }
    dataset.files = read_file_list(section, "files", true, folder, log);
    if (!dataset.files.empty()) dataset.path = dataset.files.front().path;
    if (dataset.files.size() == 1 && dataset.files.front().weight == 1.0) dataset.files.clear();
}

DatasetJob read_dataset(SectionReader section, const std::string& name, const std::string& folder,
                        ProblemLog& log) {
    DatasetJob dataset;
    dataset.name = name;
    read_train_files(section, folder, log, dataset);
    read_files(section, "eval_path", folder, log, dataset.eval_path, dataset.eval_files);
    section.read_word("tokenizer", dataset.tokenizer, tokenizer_words);
    section.read("max_seq_len", dataset.max_seq_len, 1);
    section.read_word("over_length", dataset.over_length, over_length_words);
    section.read("shuffle", dataset.shuffle);
    section.read("kl_batch_size", dataset.kl_batch_size, 2);
    section.read("eval_split", dataset.eval_split);
    if (!dataset.eval_path.empty() && section.has("eval_split")) {
        section.problem(section.find("eval_split")->place, "eval_split",
                        "goes not with an eval_path", "give one of them");
    }
    section.finish();
    return dataset;
}

std::vector<DatasetJob> read_dataset_map(const YamlNode& node, const std::string& folder,
                                         ProblemLog& log) {
    std::vector<DatasetJob> datasets;
    if (node.kind != YamlNode::Kind::map) return datasets;
    for (const YamlNode& child : node.children) {
        datasets.push_back(
            read_dataset(SectionReader(&child, child.place, "datasets." + child.key, log),
                         child.key, folder, log));
    }
    return datasets;
}

}  // namespace

std::vector<DatasetJob> read_datasets(SectionReader& top, const std::string& folder,
                                      ProblemLog& log) {
    std::vector<DatasetJob> datasets;
    SectionReader section = top.section("datasets");
    const YamlNode* node = top.find("datasets");
    if (node == nullptr || (node->kind == YamlNode::Kind::map && node->children.empty()) ||
        node->kind == YamlNode::Kind::null) {
        log.add(section.place(), node == nullptr ? "datasets: is missing" : "datasets: is empty",
                "name at least one dataset, as in datasets: {math: {path: math.jsonl}}");
        return datasets;
    }
    return read_dataset_map(*node, folder, log);
}

std::vector<DatasetJob> read_added_datasets(SectionReader& top, const std::string& folder,
                                            std::span<const DatasetJob> others, ProblemLog& log) {
    top.section("datasets");  // a mapping
    const YamlNode* node = top.find("datasets");
    if (node == nullptr) return {};
    for (const YamlNode& child : node->children) {
        const bool taken = std::any_of(others.begin(), others.end(), [&](const DatasetJob& other) {
            return other.name == child.key;
        });
        if (!taken) continue;
        log.add(child.key_place, "datasets." + child.key + ": the run has a dataset of this name",
                "leave it out to use that one, or choose another name");
    }
    return read_dataset_map(*node, folder, log);
}

void split_by_default(const EvalSplit& split, std::vector<DatasetJob>& datasets) {
    for (DatasetJob& dataset : datasets) {
        if (!dataset.has_eval()) dataset.eval_split = split;
    }
}

}  // namespace loratrain
