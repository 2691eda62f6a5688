#pragma once

#include <cstddef>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "io/safetensors.h"

namespace loratrain {

/// The tensors of an HF model directory, from model.safetensors or from the shards that
/// model.safetensors.index.json lists. Opening checks all headers and that index and shards agree:
/// every problem at once (InputError).
class HfShards {
  public:
    /// `text_only`: of a text model inside of another (name_in_text_model), under the names that
    /// these have without; the others are `ignored()`. Names with the words of torch.compile, FSDP
    /// or checkpointing in them, or with others in front of the embedding's than transformers
    /// writes ("base_model.model.", none), are read as if they were its; reported by `renamed()`.
    explicit HfShards(const std::string& dir, bool text_only = false);

    std::int64_t ignored() const { return ignored_; }
    /// "_orig_mod.model.embed_tokens.weight is read as model.embed_tokens.weight"; "" = as written.
    const std::string& renamed() const { return renamed_; }

    /// Tensor name -> position of its file.
    const std::map<std::string, std::size_t>& tensors() const { return tensors_; }
    bool has(const std::string& name) const { return tensors_.count(name) > 0; }
    const SafetensorsFile& file(const std::string& name) const { return files_[tensors_.at(name)]; }
    const SafetensorsEntry& entry(const std::string& name) const { return file(name).entry(name); }
    /// "shard path:tensor", for messages.
    std::string where(const std::string& name) const { return file(name).path() + ":" + name; }

  private:
    void open_index(const std::string& dir, const std::string& index_path);
    void keep_text_model();
    void settle_prefixes(bool text_only);
    void rename(const std::function<std::string(const std::string&)>& name_of);
    void add_file(const std::string& path);

    std::vector<SafetensorsFile> files_;
    std::map<std::string, std::size_t> tensors_;
    std::int64_t ignored_ = 0;
    std::string renamed_;
};

}  // namespace loratrain
