#include "config/adapter_reader.h"

#include <algorithm>
#include <cctype>
#include <charconv>
#include <cmath>
#include <limits>
#include <map>
#include <optional>
#include <string_view>
#include <utility>

#include "base/rng.h"
#include "config/adapter_keys.h"
#include "config/adapter_name.h"
#include "config/job_keys.h"
#include "config/key_reader.h"
#include "config/key_writer.h"
#include "config/rewards_reader.h"

namespace loratrain {

namespace {

constexpr const char* steps_not_given = "-1";  // of Hugging Face

void read_own_dataset(SectionReader& section, AdapterJob& job) {
    job.dataset = dataset_named(section, "dataset").value_or(job.dataset);
}

/// Beyond what a key accepts, given here.
void check_dropout(SectionReader& section, AdapterJob& job) {
    const YamlNode* node = section.find("lora_dropout");
    if (node == nullptr || job.lora_dropout <= largest_dropout) return;
    section.problem(node->place, "lora_dropout",
                    format_exact(job.lora_dropout) + " drops nearly everything",
                    cat("give at most ", largest_dropout));
    job.lora_dropout = 0.0;
}

void read_length(SectionReader& section, AdapterJob& job) {
    const YamlNode* steps = section.find("max_steps");
    if (steps != nullptr && steps->text == steps_not_given) steps = nullptr;
    const YamlNode* epochs = section.find("num_train_epochs");
    if (steps != nullptr && epochs != nullptr) {
        const bool steps_later =
            std::pair(steps->key_place.on_command_line, steps->key_place.line) >
            std::pair(epochs->key_place.on_command_line, epochs->key_place.line);
        section.problem((steps_later ? steps : epochs)->key_place, "max_steps",
                        "is given together with num_train_epochs", "keep one of the two");
    }
    if (epochs != nullptr) {
        section.read("num_train_epochs", job.num_train_epochs, above(0.0));
        job.max_steps.reset();
    }
    if (steps != nullptr) {
        int value = 1;
        section.read("max_steps", value, from_to(1, most_steps_of_job));
        job.max_steps = value;
        job.num_train_epochs = AdapterJob{}.num_train_epochs;
    }
}

void write_length(KeyWriter& out, const AdapterJob& job) {
    if (job.max_steps) return out.put("max_steps", value_text(*job.max_steps));
    out.put("num_train_epochs", value_text(job.num_train_epochs));
}

/// PEFT's null.
bool is_not_given(SectionReader& section, const char* key) {
    const YamlNode* node = section.find(key);
    return node == nullptr || node->kind == YamlNode::Kind::null;
}

/// Why an adapter cannot start as PEFT's init_lora_weights says; "" = the word is not PEFT's.
std::string reason_against_start(const std::string& word) {
    if (word == "false") return "would start B at random and change the model from the first step";
    if (word == "eva") return "needs a pass over the data before the adapter is made";
    if (word == "corda") return "needs a pass over the data before the adapter is made";
    if (word == "lora_ga") return "needs gradients of the base before the adapter is made";
    if (word == "loftq") return "changes the base, which other adapters share";
    if (word == "orthogonal" || word == "mica") return "is not supported";
    return "";
}

/// Of pissa_niter_N; none where that is no such number.
std::optional<int> niter_of(std::string_view word) {
    const std::string_view digits = word.substr(std::string_view(pissa_niter_word).size());
    int number = 0;
    const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), number);
    const bool whole = error == std::errc{} && end == digits.data() + digits.size();
    constexpr int most = 1000;  // each costs two products with W
    return whole && number >= 0 && number <= most ? std::optional(number) : std::nullopt;
}

void read_start(SectionReader& section, AdapterJob& job) {
    if (is_not_given(section, "init_lora_weights")) return;
    const YamlNode* node = section.find("init_lora_weights");
    job.pissa_niter.reset();
    if (node->text.starts_with(pissa_niter_word)) {
        job.init_lora_weights = Initial::pissa;
        job.pissa_niter = niter_of(node->text);
        if (job.pissa_niter) return;
        section.problem(node->place, "init_lora_weights",
                        cat("'", node->text, "' has no number of iterations"),
                        "write pissa_niter_4, at most 1000, or pissa");
        return;
    }
    const std::string reason = reason_against_start(node->text);
    if (reason.empty()) {
        section.read_word("init_lora_weights", job.init_lora_weights, initial_words);
    } else {
        section.problem(
            node->place, "init_lora_weights", cat("'", node->text, "' ", reason),
            "use true, gaussian, pissa or olora, or give what PEFT began with as init_from");
    }
}

void write_start(KeyWriter& out, const AdapterJob& job) {
    if (job.init_lora_weights == Initial::uniform) return;
    out.put("init_lora_weights", job.pissa_niter ? cat(pissa_niter_word, *job.pissa_niter)
                                                 : word_of(initial_words, job.init_lora_weights));
}

/// Keys that contradict a start which is taken from W.
void check_start(SectionReader& section, const AdapterJob& job) {
    if (job.is_vera()) return;
    if (job.init_lora_weights != Initial::pissa && job.init_lora_weights != Initial::olora) return;
    const Place& place = section.place_of("init_lora_weights");
    const std::string start = word_of(initial_words, job.init_lora_weights);
    if (job.use_dora) {
        section.problem(place, "init_lora_weights", cat("'", start, "' does not go with use_dora"),
                        "use one of the two");
    }
    if (!job.init_from.empty()) {
        section.problem(place, "init_lora_weights",
                        cat("'", start, "' does not go with init_from, which is the start"),
                        "leave one of the two out; to continue an export of a run with it, leave "
                        "init_lora_weights out and give twice the r");
    }
}

/// Keys of LoRA that VeRA has no place for, wherever they come from, and of VeRA in an adapter that
/// is none.
void check_form(SectionReader& section, const AdapterJob& job) {
    const ModuleKeys modules = job.modules ? job.modules->keys() : ModuleKeys{};
    const bool vera = job.is_vera();
    const struct {
        const char* key;
        bool wrong;
        const char* hint;
    } keys[] = {
        {"lora_alpha", vera && section.has("lora_alpha"), "leave it out: VeRA learns its scales"},
        {"use_rslora", vera && job.use_rslora, "leave it out: VeRA learns its scales"},
        {"use_dora", vera && job.use_dora, "use one of the two"},
        {"init_lora_weights", vera && job.init_lora_weights != Initial::uniform,
         "leave it out: projection_prng_key and d_initial say how VeRA begins"},
        {"loraplus_lr_ratio", vera && job.loraplus_lr_ratio != 1.0,
         "leave it out and set learning_rate: all that VeRA trains has one rate"},
        {"rank_pattern", vera && !modules.rank_pattern.empty(),
         "leave it out: the projections that modules share have one r"},
        {"alpha_pattern", vera && !modules.alpha_pattern.empty(),
         "leave it out: VeRA learns its scales"},
        {"d_initial", !vera && section.has("d_initial"), "it is of peft_type: vera"},
        {"projection_prng_key", !vera && section.has("projection_prng_key"),
         "it is of peft_type: vera"},
        {"save_projection", !vera && section.has("save_projection"), "it is of peft_type: vera"},
    };
    for (const auto& [key, wrong, hint] : keys) {
        if (!wrong) continue;
        const YamlNode* node = section.find(key);
        section.problem(node == nullptr ? section.place() : node->key_place, key,
                        vera ? "does not go with peft_type: vera" : "has no meaning for LoRA",
                        hint);
    }
}

void read_optim(SectionReader& section, AdapterJob& job) {
    const YamlNode* node = section.find("optim");
    if (node == nullptr || node->kind == YamlNode::Kind::null) return;
    const bool known =
        std::any_of(optim_words.begin(), optim_words.end(),
                    [&](const Word<Optim>& word) { return node->text == word.text; });
    if (known || node->kind != YamlNode::Kind::scalar) {
        return section.read_word("optim", job.optim, optim_words);
    }
    const bool coded = node->text.find("8bit") != std::string::npos;
    section.problem(
        node->place, "optim", cat("'", node->text, "' is not one of the optimizers here"),
        coded ? "write adamw_8bit: its states stay in the device's memory, and adapters that do "
                "not fit there take turns (schedule.max_adapters)"
              : "write adamw_torch, which is AdamW with moments in fp32, or adamw_8bit");
}

void read_reference(SectionReader& section, AdapterJob& job) {
    const YamlNode* node = section.find("ref_adapter");
    if (node != nullptr && node->text == ref_is_start) {
        job.ref_adapter = ref_is_start;
    } else if (!is_not_given(section, "ref_adapter")) {
        section.read_path("ref_adapter", job.ref_adapter);
    } else if (node != nullptr) {
        job.ref_adapter.clear();
    }
}

/// What a reference is in the end; defaults may have it for some of the adapters.
void check_reference(SectionReader& section, AdapterJob& job) {
    // Of a fresh adapter the start is the base.
    if (job.ref_adapter == ref_is_start) job.ref_adapter = job.init_from;
    if (!job.loss.has_reference()) job.ref_adapter.clear();
    const bool of_weights = has_residual_start(form_of(job));
    const YamlNode* node = section.find("ref_adapter");
    if (node == nullptr) node = section.find("init_lora_weights");
    if (!of_weights || job.ref_adapter.empty()) return;
    section.problem(
        node == nullptr ? section.place() : node->place, "ref_adapter",
        cat("does not go with init_lora_weights: ", word_of(initial_words, job.init_lora_weights),
            ", with which A and B start as a part of W"),
        "leave one of the two out");
}

/// Types are of the losses of pairs, or of sft.
void check_loss_type(SectionReader& section, const LossJob& loss) {
    const bool of_tokens = loss.type == LossType::nll || loss.type == LossType::dft;
    const YamlNode* node = section.find("loss_type");
    if (loss.has_types() ? !of_tokens : of_tokens || node == nullptr) return;
    section.problem(node == nullptr ? section.place() : node->key_place, "loss_type",
                    cat(word_of(loss_type_words, loss.type),
                        " is not a variant of loss: ", word_of(loss_words, loss.loss)),
                    loss.has_types() ? "write sigmoid, hinge or ipo" : "write nll or dft");
}

/// Finds what an adapter gives and its loss does not use; defaults may have it for some of the
/// adapters.
class LossCheck : public KeyTexts {
  public:
    LossCheck(SectionReader& section, const LossJob& loss) : section_(section), loss_(loss) {}

  private:
    void see(const SeenKey& key) override {
        if (key.info.used) return;
        const YamlNode* node = section_.find(key.name);
        if (node == nullptr) return;
        section_.problem(node->key_place, key.name,
                         cat("has no meaning with loss: ", word_of(loss_words, loss_.loss),
                             loss_.has_types() || loss_.is_dft()
                                 ? cat(", loss_type: ", word_of(loss_type_words, loss_.type))
                                 : ""),
                         cat("leave it out; it belongs to loss: ", key.info.of));
    }

    SectionReader& section_;
    const LossJob& loss_;
};

/// Rewards need a scale; the KL of rollouts may be left out.
void check_beta(SectionReader& section, const LossJob& loss) {
    if (!loss.has_rewards() || loss.beta_or_usual() > 0.0) return;
    section.problem(section.place_of("beta"), "beta", "0 is out of range",
                    "give a number, " + above(0.0).words());
}

void check_aggregation(SectionReader& section, const LossJob& loss) {
    const bool constant = loss.is_of_rollouts() && loss.aggregation == LossAggregation::constant;
    if (!constant || loss.max_completion_length) return;
    section.problem(section.place_of("loss_aggregation"), "loss_aggregation",
                    "constant needs a max_completion_length, by which it divides",
                    "give the largest number of tokens that was sampled for a rollout");
}

void check_loss(SectionReader& section, AdapterJob& job) {
    LossCheck check(section, job.loss);
    keys(check, job);
    if (job.loss.has_types() || job.loss.loss == Loss::sft) check_loss_type(section, job.loss);
    check_beta(section, job.loss);
    check_aggregation(section, job.loss);
}

/// The keys of an adapter, or those that `defaults` has for every one.
void read_keys(SectionReader& section, AdapterDefaults& draft, bool shared) {
    KeyReader reader(section, shared);
    keys(reader, draft.adapter);
    draft.has_dataset = draft.has_dataset || section.has("dataset");
    check_dropout(section, draft.adapter);
}

AdapterDefaults read_defaults(SectionReader& top, const AdapterContext& context) {
    AdapterDefaults defaults;
    defaults.adapter.seed = context.seed;
    if (context.defaults != nullptr) defaults = *context.defaults;
    SectionReader section = top.section("defaults", adapter_section);
    if (const YamlNode* name = section.find("name")) {
        section.problem(name->key_place, "name", "cannot be shared by adapters",
                        "name each adapter in the list 'adapters'");
    }
    read_keys(section, defaults, true);
    section.finish();
    return defaults;
}

std::string lower_case(std::string text) {
    for (char& c : text) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
    return text;
}

class NameCheck {
  public:
    explicit NameCheck(std::span<const AdapterJob> others) {
        for (const AdapterJob& other : others) {
            seen_.emplace(lower_case(other.name), "the run has an adapter of this name");
        }
    }
    void check(SectionReader& section, const std::string& name) {
        const YamlNode* node = section.find("name");
        if (node == nullptr || node->kind != YamlNode::Kind::scalar || name.empty()) return;
        if (!is_adapter_name(name)) {
            section.problem(
                node->place, "name", "'" + name + "' cannot name a folder",
                cat("use letters, digits, '.', '_' and '-', not '.' or '-' first, at most ",
                    longest_adapter_name, " in all"));
        }
        const auto [first, added] =
            seen_.emplace(lower_case(name), "it was already given at " + node->place.text);
        if (added) return;
        section.problem(node->place, "name", "'" + name + "' is used twice",
                        first->second + "; upper and lower case count as the same");
    }

  private:
    std::map<std::string, std::string> seen_;  ///< where
};

void check_has_dataset(SectionReader& section, const AdapterDefaults& draft) {
    const ReadContext& context = section.context();
    if (draft.has_dataset || context.datasets.size() <= 1) return;
    section.problem(
        section.place(), "dataset", "is missing: the job has several datasets",
        cat("give a dataset, here or in defaults; ", context.log.hint_among("", context.datasets)));
}

std::string adapter_path(const YamlNode& item, std::size_t i) {
    const YamlNode* name = item.find("name");
    return name != nullptr && !name->text.empty() ? "adapters." + name->text
                                                  : cat("adapters[", i, "]");
}

AdapterJob read_adapter(SectionReader& section, const AdapterDefaults& defaults, NameCheck& names) {
    AdapterDefaults draft = defaults;
    read_keys(section, draft, false);
    names.check(section, draft.adapter.name);
    check_loss(section, draft.adapter);
    check_has_dataset(section, draft);
    check_modules(section, draft.adapter);
    check_form(section, draft.adapter);
    check_start(section, draft.adapter);
    check_reference(section, draft.adapter);
    check_rewards(section, draft.adapter);
    check_lr_schedule(section, draft.adapter);
    draft.adapter.form = form_of(draft.adapter);
    check_outer(section, draft.adapter);
    section.finish();
    return std::move(draft.adapter);
}

/// Whether there is a list to read; one of at least one adapter is needed without a sweep.
bool has_adapters(SectionReader& top, const YamlNode* list, bool sweep, ProblemLog& log) {
    const bool empty = list == nullptr || list->kind == YamlNode::Kind::null ||
                       (list->children.empty() && list->kind != YamlNode::Kind::scalar);
    if (empty && sweep) return false;
    if (!empty && list->kind == YamlNode::Kind::list) return true;
    log.add(list == nullptr ? top.place() : list->place,
            list == nullptr ? "adapters: is missing"
                            : (empty ? "adapters: is empty" : "adapters must be a list"),
            "list at least one adapter, as in adapters: [{name: a, r: 8}]");
    return false;
}

}  // namespace

const OwnKey<AdapterJob> dataset_key{read_own_dataset, [](KeyWriter& out, const AdapterJob& job) {
                                         out.put("dataset", out.job().dataset(job.dataset).name);
                                     }};
const OwnKey<AdapterJob> start_key{read_start, write_start};
const OwnKey<AdapterJob> reference_key{read_reference, [](KeyWriter& out, const AdapterJob& job) {
                                           if (!job.ref_adapter.empty())
                                               out.put("ref_adapter",
                                                       written_path(job.ref_adapter));
                                       }};
const OwnKey<AdapterJob> optim_key{read_optim, [](KeyWriter& out, const AdapterJob& job) {
                                       out.put("optim", word_of(optim_words, job.optim));
                                   }};
const OwnKey<AdapterJob> length_key{read_length, write_length};

AdapterList read_adapters(SectionReader& top, const AdapterContext& context) {
    AdapterList result;
    ProblemLog& log = top.context().log;
    result.defaults = read_defaults(top, context);
    NameCheck names(context.others);
    const auto read = [&](const YamlNode& item, const std::string& path) {
        SectionReader section(&item, item.place, path, top.context(), adapter_section);
        result.adapters.push_back(read_adapter(section, result.defaults, names));
    };
    const YamlNode* list = top.find("adapters");
    if (has_adapters(top, list, context.space != nullptr, log)) {
        for (std::size_t i = 0; i < list->children.size(); ++i) {
            read(list->children[i], adapter_path(list->children[i], i));
        }
    }
    if (context.space == nullptr) return result;
    const bool listed = context.space->method == SweepMethod::list;
    for (const YamlNode& trial : expand_space(*context.space, result.defaults.adapter, log)) {
        read(trial, listed ? "sweep.configurations" : "sweep.space");
    }
    return result;
}

}  // namespace loratrain
