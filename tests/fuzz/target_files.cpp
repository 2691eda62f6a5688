#include "base/error.h"
#include "base/tensor.h"
#include "data/dataset.h"
#include "fuzz/mutate.h"
#include "fuzz/target.h"
#include "io/adapters/adapter_file.h"
#include "io/hdf5_handle.h"
#include "io/weights/import_hf.h"
#include "support/files.h"
#include "test_paths.h"
#include "unit/io/tiny_model.h"

/// Files of others: HF folders, base.h5, data and PEFT folders.

namespace loratrain::fuzz {

namespace {

namespace fs = std::filesystem;
using test::get;
using test::put;

constexpr WeightFormat quantized_formats[] = {WeightFormat::nf4, WeightFormat::int8,
                                              WeightFormat::e4m3};

using Values = std::vector<std::vector<float>>;

Values all_values(const WeightSource& weights) {
    Values values;
    for (const BaseTensor& tensor : base_tensors(weights.spec())) {
        values.push_back(test::read_all(weights, tensor));
    }
    return values;
}

void put_tiny_model(const std::string& folder) {
    test::put_model(folder, test::tiny_config(), test::tiny_tensors(test::tiny_spec()));
}

class ImportTarget final : public Target {
  public:
    explicit ImportTarget(const std::string& folder)
        : folder_(folder), hf_(folder + "/hf"), index_(hf_ + "/model.safetensors.index.json") {
        put_tiny_model(hf_);
        folders_.push_back({get(hf_ + "/config.json"), get(hf_ + "/model.safetensors")});
        for (const char* family : {"llama_nf4", "llama_int8", "llama_e4m3", "llama_e4m3_block",
                                   "gpt_oss", "gpt_oss_mxfp4"}) {
            const std::string base = cat(LORATRAIN_TEST_DATA "/golden/", family, "/base/");
            folders_.push_back({get(base + "config.json"), get(base + "model.safetensors")});
        }
        nlohmann::json map;
        for (const BaseTensor& tensor : base_tensors(test::tiny_spec())) {
            map[tensor.name] = "model.safetensors";
        }
        index_text_ =
            nlohmann::json{{"metadata", {{"total_size", 1}}}, {"weight_map", map}}.dump(1);
    }
    void run(Draw& draw) override {
        const std::size_t which = draw.below(4);
        const bool plain = which == 3 || draw.one_in(2);
        const Folder& folder = plain ? folders_.front() : draw.among(folders_);
        put(hf_ + "/config.json", which == 0 ? mutate_text(folder.config, draw) : folder.config);
        put(hf_ + "/model.safetensors",
            which == 1 || which == 2 ? mutate_safetensors(folder.tensors, draw) : folder.tensors);
        fs::remove(index_);
        if (which == 3) put(index_, mutate_text(index_text_, draw));
        const std::string out = folder_ + "/base.h5";
        ImportOptions options;
        options.force = true;
        options.store_bf16 = draw.one_in(2);
        if (draw.one_in(4)) options.quantize = draw.among(quantized_formats);
        import_hf(hf_, out, options);
        const auto weights = open_base_weights(out);
        for (const BaseTensor& tensor : base_tensors(weights->spec())) {
            weights->check_contents(tensor.name);
        }
    }

  private:
    struct Folder {
        std::string config;
        std::string tensors;
    };
    std::string folder_;
    std::string hf_;
    std::string index_;
    std::vector<Folder> folders_;  ///< the first is a tiny llama
    std::string index_text_;
};

/// A file that passes all checks has the values that it had.
class BaseTarget final : public Target {
  public:
    explicit BaseTarget(const std::string& folder) : path_(folder + "/base.h5") {
        nlohmann::json config = test::tiny_config();
        for (const char* size : {"hidden_size", "head_dim", "intermediate_size"}) config[size] = 64;
        test::put_model(folder + "/hf", config, test::tiny_tensors(test::tiny_spec(config)));
        for (const WeightFormat format : quantized_formats) {
            import_hf(folder + "/hf", path_, {.force = true, .quantize = format});
            keep();
        }
        put_tiny_model(folder + "/hf");
        import_hf(folder + "/hf", path_, {.force = true});
        keep();
    }
    void run(Draw& draw) override {
        const Good& good = draw.one_in(2) ? goods_.back() : draw.among(goods_);
        put(path_, mutate_bytes(good.bytes, draw));
        const auto weights = open_base_weights(path_);
        for (const BaseTensor& tensor : base_tensors(weights->spec())) {
            weights->check_contents(tensor.name);
        }
        if (all_values(*weights) != good.values) throw Error("weights have changed unnoticed");
    }

  private:
    struct Good {
        std::string bytes;
        Values values;
    };
    void keep() { goods_.push_back({get(path_), all_values(*open_base_weights(path_))}); }

    std::string path_;
    std::vector<Good> goods_;
};

/// Reads a data file as a job would.
void read_dataset(const std::string& path, Draw& draw) {
    DatasetJob job;
    job.max_seq_len = draw.one_in(3) ? 4 : 2048;
    job.over_length = draw.one_in(2) ? OverLength::truncate : OverLength::drop;
    job.tokenizer = draw.one_in(3) ? Tokenizer::bytes : Tokenizer::none;
    if (path.ends_with(".h5")) job.tokenizer = Tokenizer::none;
    const Dataset dataset(path, job, 300);
    for (std::size_t i = 0; i < dataset.infos().size(); ++i) {
        const TokenSample sample = dataset.read(static_cast<std::int64_t>(i));
        if (static_cast<std::size_t>(dataset.infos()[i].tokens) != sample.input_ids.size()) {
            throw Error("a sample has another length than was said");
        }
        const std::size_t tokens = dataset.is_rollouts() ? sample.input_ids.size() : 0;
        if (sample.advantages.size() != tokens || sample.logprobs.size() != tokens) {
            throw Error("a rollout has not a number for each token");
        }
    }
}

class TokenLinesTarget final : public Target {
  public:
    explicit TokenLinesTarget(const std::string& folder) : path_(folder + "/data.jsonl") {}
    void run(Draw& draw) override {
        put(path_, mutate_text(draw.among(texts), draw));
        read_dataset(path_, draw);
    }

  private:
    static inline const std::vector<std::string> texts{
        "{\"input_ids\": [1, 2, 3], \"labels\": [-100, 2, 3]}\n{\"input_ids\": [7, 8]}\n"
        "{\"labels\": [5, 6], \"input_ids\": [5, 6], \"attention_mask\": [1, 1]}\n",
        "{\"prompt\": \"a\\u00e4\", \"completion\": \"b\\n\"}\n{\"text\": \"some words\"}\n",
        "{\"chosen_input_ids\": [1, 2], \"chosen_labels\": [-100, 2], \"rejected_input_ids\": [1, "
        "3, 4], "
        "\"rejected_labels\": [-100, 3, 4]}\n",
        "{\"prompt\": \"a\", \"chosen\": \"b\", \"rejected\": \"cc\"}\n",
        "{\"input_ids\": [1, 2, 3], \"labels\": [-100, 2, 3], \"advantages\": [0, -1.5, 2], "
        "\"logprobs\": [0, -0.5, -2]}\n"};
    std::string path_;
};

void put_list(hid_t file, const char* name, hid_t type, hid_t memory_type, hsize_t count,
              const void* data, bool chunked) {
    const Hdf5Handle space(H5Screate_simple(1, &count, nullptr), H5Sclose);
    const Hdf5Handle layout(H5Pcreate(H5P_DATASET_CREATE), H5Pclose);
    const hsize_t chunk = 4;
    if (chunked) H5Pset_chunk(layout.get(), 1, &chunk);
    if (chunked) H5Pset_deflate(layout.get(), 4);
    const Hdf5Handle dataset(
        H5Dcreate2(file, name, type, space.get(), H5P_DEFAULT, layout.get(), H5P_DEFAULT),
        H5Dclose);
    H5Dwrite(dataset.get(), memory_type, H5S_ALL, H5S_ALL, H5P_DEFAULT, data);
}

class TokenHdf5Target final : public Target {
  public:
    explicit TokenHdf5Target(const std::string& folder) : path_(folder + "/data.h5") {
        const std::vector<std::int32_t> ids{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12};
        const std::vector<std::int64_t> offsets{0, 3, 4, 9, 12};
        for (const bool chunked : {false, true}) {
            {
                const Hdf5Handle file = create_hdf5_file(path_);
                for (const char* name : {"tokens", "labels"}) {
                    put_list(file.get(), name, H5T_STD_I32LE, H5T_NATIVE_INT32, ids.size(),
                             ids.data(), chunked);
                }
                put_list(file.get(), "offsets", H5T_STD_I64LE, H5T_NATIVE_INT64, offsets.size(),
                         offsets.data(), chunked);
            }
            files_.push_back(get(path_));
        }
    }
    void run(Draw& draw) override {
        put(path_, mutate_bytes(draw.among(files_), draw));
        read_dataset(path_, draw);
    }

  private:
    std::string path_;
    std::vector<std::string> files_;
};

class PeftTarget final : public Target {
  public:
    explicit PeftTarget(const std::string& folder) : folder_(folder), spec_(test::tiny_spec()) {
        adapter_.name = "a";
        adapter_.r = 2;
        adapter_.targets = {true, false, false, true, false, false, false};
        std::vector<NamedTensor> tensors;
        for (const Linear linear : {Linear::q, Linear::o}) {
            for (const FormTensor& of_form : adapter_.form.tensors) {
                NamedTensor tensor{"base_model.model.model.layers.0.self_attn." +
                                       std::string(module_name(linear)) + "." + of_form.name +
                                       ".weight",
                                   tensor_shape(of_form, 2, linear_shape(spec_, linear)),
                                   {}};
                tensor.values.assign(static_cast<std::size_t>(element_count(tensor.shape)), 0.5F);
                tensors.push_back(std::move(tensor));
            }
        }
        write_adapter(folder, adapter_, spec_, "base", tensors);
        config_ = get(folder + "/adapter_config.json");
        weights_ = get(folder + "/adapter_model.safetensors");
        AdapterFile(folder, adapter_, spec_).check_values();
    }
    void run(Draw& draw) override {
        const bool config = draw.one_in(2);
        put(folder_ + "/adapter_config.json", config ? mutate_text(config_, draw) : config_);
        put(folder_ + "/adapter_model.safetensors",
            config ? weights_ : mutate_safetensors(weights_, draw));
        AdapterFile(folder_, adapter_, spec_).check_values();
    }

  private:
    std::string folder_;
    ModelSpec spec_;
    AdapterJob adapter_;
    std::string config_;
    std::string weights_;
};

}  // namespace

std::unique_ptr<Target> import_target(const std::string& folder) {
    return std::make_unique<ImportTarget>(folder);
}

std::unique_ptr<Target> base_target(const std::string& folder) {
    return std::make_unique<BaseTarget>(folder);
}

std::unique_ptr<Target> token_lines_target(const std::string& folder) {
    return std::make_unique<TokenLinesTarget>(folder);
}

std::unique_ptr<Target> token_hdf5_target(const std::string& folder) {
    return std::make_unique<TokenHdf5Target>(folder);
}

std::unique_ptr<Target> peft_target(const std::string& folder) {
    return std::make_unique<PeftTarget>(folder);
}

}  // namespace loratrain::fuzz
