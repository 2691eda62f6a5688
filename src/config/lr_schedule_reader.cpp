#include "config/adapter_reader.h"

#include <cmath>
#include <limits>

#include "base/text.h"
#include "config/adapter_keys.h"
#include "config/key_reader.h"
#include "config/key_writer.h"

namespace loratrain {

namespace {

constexpr const char* kwargs_key = "lr_scheduler_kwargs";

const Place& place_of_kwargs(SectionReader& section) {
    const YamlNode* node = section.find(kwargs_key);
    return node != nullptr ? node->place : section.place();
}

/// Another type than the one before goes without the kwargs of that.
void read_type(SectionReader& section, AdapterJob& job) {
    const LrSchedule before = job.lr_scheduler_type;
    section.read_word("lr_scheduler_type", job.lr_scheduler_type, lr_scheduler_words);
    if (job.lr_scheduler_type != before) job.lr_scheduler_kwargs = {};
}

void read_warmup_steps(SectionReader& section, AdapterJob& job) {
    double value = job.warmup_steps;
    section.read("warmup_steps", value, at_least(0.0));
    if (value <= std::numeric_limits<int>::max() && (value < 1.0 || is_whole(value))) {
        job.warmup_steps = value;
    } else {
        section.problem(section.find("warmup_steps")->place, "warmup_steps",
                        format_exact(value) + " is neither a number of steps nor a fraction",
                        "give a whole number, or a fraction of the steps below 1, as in 0.1");
    }
}

/// The older name of a fraction; steps beside it count, as with transformers, unless they are 0.
void read_warmup(SectionReader& section, AdapterJob& job) {
    const YamlNode* ratio = section.find("warmup_ratio");
    if (ratio != nullptr && ratio->kind != YamlNode::Kind::null) {
        double value = 0.0;
        section.read("warmup_ratio", value, from_to_below(0.0, 1.0));
        const YamlNode* steps = section.find("warmup_steps");
        const bool both = steps != nullptr && number_in(steps->text).value_or(0.0) > 0.0;
        if (both && value > 0.0) {
            section.problem(ratio->key_place, "warmup_ratio", "is given together with warmup_steps",
                            "keep one of the two");
        }
        if (!both) {
            job.warmup_steps = value;
            return;
        }
    }
    read_warmup_steps(section, job);
}

/// Finds what is given of the kwargs and is not for the adapter's schedule.
class KwargsCheck : public KeyTexts {
  public:
    KwargsCheck(SectionReader& section, LrSchedule type)
        : section_(section), type_(word_of(lr_scheduler_words, type)) {}

  private:
    void see(const SeenKey& key) override {
        if (!key.text || !key.info.written) return;
        if (cat(key.info.of, ",").find(type_ + ",") != std::string::npos) return;
        section_.problem(place_of_kwargs(section_), cat(kwargs_key, ".", key.name),
                         cat("is not for lr_scheduler_type: ", type_),
                         cat("it goes with ", key.info.of));
    }

    SectionReader& section_;
    std::string type_;
};

}  // namespace

const OwnKey<AdapterJob> lr_schedule_key{
    read_type, [](KeyWriter& out, const AdapterJob& job) {
        out.put("lr_scheduler_type", word_of(lr_scheduler_words, job.lr_scheduler_type));
    }};
const OwnKey<AdapterJob> warmup_key{read_warmup, [](KeyWriter& out, const AdapterJob& job) {
                                        out.put("warmup_steps", value_text(job.warmup_steps));
                                    }};

void check_lr_schedule(SectionReader& section, const AdapterJob& job) {
    LrSchedulerKwargs kwargs = job.lr_scheduler_kwargs;
    KwargsCheck check(section, job.lr_scheduler_type);
    keys(check, kwargs);
    const auto problem = [&](const std::string& what, const std::string& hint) {
        section.problem(place_of_kwargs(section), kwargs_key, what, hint);
    };
    switch (job.lr_scheduler_type) {
        case LrSchedule::cosine_with_min_lr:
            if (kwargs.min_lr && job.learning_rate <= 0.0) {
                return problem("min_lr is given with a learning rate of 0",
                               "give a learning rate above 0");
            }
            if (kwargs.min_lr.has_value() != kwargs.min_lr_rate.has_value()) return;
            return problem(kwargs.min_lr ? "has both min_lr and min_lr_rate"
                                         : "cosine_with_min_lr needs min_lr or min_lr_rate",
                           "give one, as in {min_lr_rate: 0.1}");
        case LrSchedule::warmup_stable_decay:
            if (kwargs.num_decay_steps) return;
            return problem("warmup_stable_decay needs num_decay_steps",
                           "give it, as in {num_decay_steps: 20}");
        case LrSchedule::polynomial:
            if (kwargs.lr_end.value_or(usual_lr_end) < job.learning_rate) return;
            return problem(
                cat("lr_end is ", format_exact(kwargs.lr_end.value_or(usual_lr_end)),
                    ", not below the learning rate of ", format_exact(job.learning_rate)),
                "give a smaller lr_end");
        case LrSchedule::cosine_with_restarts:
            if (is_whole(kwargs.num_cycles.value_or(1.0))) return;
            return problem("num_cycles of cosine_with_restarts is not a whole number",
                           "give how often it restarts");
        default:
            return;
    }
}

}  // namespace loratrain
