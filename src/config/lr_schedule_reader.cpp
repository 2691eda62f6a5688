#include "config/lr_schedule_reader.h"

#include <cmath>
#include <limits>

#include "base/text.h"
#include "config/job_words.h"
#include "config/lr_numbers.h"

namespace loratrain {

namespace {

constexpr const char* kwargs_key = "lr_scheduler_kwargs";

const Place& place_of_kwargs(SectionReader& section) {
    const YamlNode* node = section.find(kwargs_key);
    return node != nullptr ? node->place : section.place();
}

bool is_whole(double value) {
    return value == std::floor(value) && value <= std::numeric_limits<int>::max();
}

void read_number(SectionReader& kwargs, const LrNumber& number, LrSchedulerKwargs& result) {
    const YamlNode* node = kwargs.find(number.key);
    if (node == nullptr || node->kind == YamlNode::Kind::null) return;
    double value = number.least;
    kwargs.read(number.key, value, at_least(number.least));
    if (number.whole && !is_whole(value)) {
        kwargs.problem(node->place, number.key, format_exact(value) + " is no whole number",
                       "give a number of steps");
        return;
    }
    result.*number.field = value;
}

void read_kwargs(SectionReader& section, AdapterJob& job) {
    if (section.find(kwargs_key) == nullptr) return;
    job.lr_scheduler_kwargs = {};
    SectionReader kwargs = section.section(kwargs_key);
    for (const LrNumber& number : lr_numbers) {
        read_number(kwargs, number, job.lr_scheduler_kwargs);
    }
    kwargs.read_word("warmup_type", job.lr_scheduler_kwargs.warmup_type, lr_ramp_words);
    kwargs.read_word("decay_type", job.lr_scheduler_kwargs.decay_type, lr_ramp_words);
    kwargs.finish();
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

void check_whose(SectionReader& section, const AdapterJob& job) {
    const LrSchedule type = job.lr_scheduler_type;
    const auto check = [&](const char* key, bool given, LrSchedules takers) {
        if (!given || takers.contain(type)) return;
        section.problem(place_of_kwargs(section), cat(kwargs_key, ".", key),
                        cat("is not for lr_scheduler_type: ", word_of(lr_scheduler_words, type)),
                        cat("it goes with ", takers.words()));
    };
    const LrSchedulerKwargs& kwargs = job.lr_scheduler_kwargs;
    for (const LrNumber& number : lr_numbers) {
        check(number.key, (kwargs.*number.field).has_value(), number.takers);
    }
    const LrSchedules stable{{LrSchedule::warmup_stable_decay}};
    check("warmup_type", kwargs.warmup_type != LrSchedulerKwargs{}.warmup_type, stable);
    check("decay_type", kwargs.decay_type != LrSchedulerKwargs{}.decay_type, stable);
}

}  // namespace

std::string LrSchedules::words() const {
    std::vector<std::string> names;
    for (const auto& type : types) {
        if (type) names.emplace_back(word_of(lr_scheduler_words, *type));
    }
    return join(names, ", ");
}

void read_lr_schedule(SectionReader& section, AdapterJob& job) {
    const LrSchedule before = job.lr_scheduler_type;
    section.read_word("lr_scheduler_type", job.lr_scheduler_type, lr_scheduler_words);
    if (job.lr_scheduler_type != before) job.lr_scheduler_kwargs = {};
    read_kwargs(section, job);
    read_warmup(section, job);
}

void check_lr_schedule(SectionReader& section, const AdapterJob& job) {
    check_whose(section, job);
    const LrSchedulerKwargs& kwargs = job.lr_scheduler_kwargs;
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
            return problem("num_cycles of cosine_with_restarts is no whole number",
                           "give how often it restarts");
        default:
            return;
    }
}

}  // namespace loratrain
