#include "plan/text/model_text.h"

#include "config/text_archive.h"

namespace loratrain {

/// A document that has a model beside other things.
struct ModelDocument {
    ModelSpec model;
};

template <class Archive>
void fields(Archive& archive, ModelDocument& document) {
    archive("model", document.model);
}

std::string model_text(const ModelSpec& model) {
    return yaml_text(text_tree(ModelDocument{model}));
}

ModelSpec read_model(const std::string& document) {
    try {
        const YamlNode root = parse_document(document, "plan text");
        ModelDocument found;
        const TextPath path;
        TextReader reader(root, path);
        fields(reader, found);
        return found.model;
    } catch (const InputError& error) {  // no person wrote it
        throw Error(error.what());
    }
}

}  // namespace loratrain
