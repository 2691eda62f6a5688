#pragma once

#include <cstddef>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "config/layer_spec.h"
#include "io/safetensors.h"
#include "io/weights/packed_experts.h"

namespace loratrain {

/// How a model directory names its tensors.
struct FolderNames {
    bool text_only = false;  ///< only the text model inside another model is wanted
    ExpertNames experts = ExpertNames::usual;
    /// Of layers that predict further tokens (FurtherLayers::prefix); "" = they have none.
    std::string further_prefix = {};

    bool predict_further_tokens(const std::string& name) const {
        return !further_prefix.empty() && name.starts_with(further_prefix);
    }
};

/// Tensors of an HF model directory: model.safetensors, or the shards that
/// model.safetensors.index.json lists. Opening checks all headers, and that index and shards agree;
/// of what is beside a text model files may lack what the index lists.
/// Throws InputError with all problems at once.
class HfShards {
  public:
    /// text_only: keeps only the tensors of the text model inside another model, under the names
    /// that they have in a text model (name_in_text_model); ignored() counts the others. Extra
    /// words in tensor names are removed: those of torch.compile, FSDP or checkpointing, and
    /// prefixes other than the one that transformers writes ("base_model.model.", or a missing
    /// prefix). renamed() reports it.
    /// Experts that are one tensor for all of a layer ("mlp.experts.gate_up_proj" [E, 2 F, H],
    /// "mlp.experts.down_proj" [E, H, F]) become tensors of each, named as base.h5 names them;
    /// those of gpt_oss too, as packed_experts.h says.
    HfShards(const std::string& dir, const FolderNames& names);

    std::int64_t ignored() const { return ignored_; }
    /// Example of a renamed tensor: "_orig_mod.model.embed_tokens.weight is read as
    /// model.embed_tokens.weight"; "" = all names are as transformers writes them.
    const std::string& renamed() const { return renamed_; }

    /// Tensor name -> index of its file.
    const std::map<std::string, std::size_t>& tensors() const { return tensors_; }
    bool has(const std::string& name) const { return tensors_.count(name) > 0; }
    const SafetensorsFile& file(const std::string& name) const { return files_[tensors_.at(name)]; }
    /// Type and shape.
    const SafetensorsEntry& entry(const std::string& name) const;
    /// "shard path:tensor", for messages.
    std::string where(const std::string& name) const { return file(name).path() + ":" + name; }

  private:
    friend class HfTensorReader;
    /// A tensor that a file does not have as it is read.
    struct Packed {
        PackedTensor how;
        SafetensorsEntry entry;
        std::size_t file = 0;
        std::size_t scales_file = 0;
    };
    void open_index(const std::string& dir, const std::string& index_path,
                    const FolderNames& of_folder);
    void keep_text_model();
    void settle_prefixes(const FolderNames& of_folder);
    void split_tensors();
    void unpack_experts();
    void find_tensors();
    void rename(const std::function<std::string(const std::string&)>& name_of);
    void add_file(const std::string& path);

    std::vector<SafetensorsFile> files_;
    std::map<std::string, std::size_t> tensors_;
    std::map<std::string, Packed> packed_;
    std::int64_t ignored_ = 0;
    std::string renamed_;
};

/// Reads rows of a tensor, in its type. It holds the whole of one that is unpacked.
class HfTensorReader {
  public:
    HfTensorReader(const HfShards& shards, const std::string& name);
    /// target: bytes of `count` rows of `row_bytes`, from row `first` on.
    void read(std::int64_t first, std::int64_t count, std::uint64_t row_bytes, void* target) const;

  private:
    const SafetensorsFile& file_;
    std::string name_;
    std::vector<char> unpacked_;  ///< empty: the file has the tensor as it is read
};

}  // namespace loratrain
