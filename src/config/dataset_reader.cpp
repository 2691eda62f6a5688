#include "config/dataset_reader.h"

#include <algorithm>

namespace loratrain {

namespace {

DatasetJob read_dataset(SectionReader section, const std::string& name, const std::string& folder) {
    DatasetJob dataset;
    dataset.name = name;
    section.require("path", "give a .jsonl or .h5 file");
    section.read_path("path", dataset.path, folder);
    section.read_path("eval_path", dataset.eval_path, folder);
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
        datasets.push_back(read_dataset(
            SectionReader(&child, child.place, "datasets." + child.key, log), child.key, folder));
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
