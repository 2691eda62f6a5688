#include "config/sweep_space.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <set>
#include <utility>

#include "base/error.h"
#include "base/rng.h"
#include "config/job_sections.h"
#include "config/key_reader.h"
#include "config/sweep_axis.h"

namespace loratrain {

namespace {

/// One value of each axis.
using Configuration = std::vector<YamlNode>;

double combinations(const std::vector<SweepAxis>& axes) {
    double product = 1.0;
    for (const SweepAxis& axis : axes) {
        product *= axis.range ? INFINITY : static_cast<double>(axis.choices.size());
    }
    return product;
}

bool too_many(double count, const SweepSpace& space, ProblemLog& log) {
    if (count <= static_cast<double>(most_trials)) return false;
    log.add(space.place, cat("sweep: ", format_fixed(count, 0), " configurations are too many"),
            cat("at most ", most_trials,
                "; thin the lists, or draw some of them: method: random, configurations: 100"));
    return true;
}

/// The `number`-th of the grid.
Configuration grid_point(const std::vector<SweepAxis>& axes, std::size_t number) {
    Configuration values(axes.size());
    for (std::size_t a = axes.size(); a-- > 0;) {
        const std::size_t choices = axes[a].choices.size();
        values[a] = axes[a].choices[number % choices];
        number /= choices;
    }
    return values;
}

Configuration random_point(const std::vector<SweepAxis>& axes, std::uint64_t seed,
                           std::size_t trial, std::uint64_t attempt) {
    Configuration values;
    for (const SweepAxis& axis : axes) {
        const std::uint64_t key = tensor_key(seed, cat("trial ", trial), axis.key);
        values.push_back(axis.range ? drawn_value(axis, uniform_float(key, attempt))
                                    : axis.choices[uniform_int(key, attempt, axis.choices.size())]);
    }
    return values;
}

/// The keys of an adapter, multiples of r worked out.
YamlNode keys_of(const Configuration& values, const SweepSpace& space, const AdapterJob& defaults,
                 ProblemLog& log) {
    YamlNode trial;
    trial.kind = YamlNode::Kind::map;
    trial.place = trial.key_place = space.place;
    for (const YamlNode& value : values) {
        for (const YamlNode& child : value.children) {
            if (trial.find(child.key) == nullptr) {
                trial.children.push_back(child);
                continue;
            }
            log.add(child.key_place, "sweep.space." + child.key + ": is given twice",
                    "keep it in one place of the space");
        }
    }
    const YamlNode* r = trial.find("r");
    const std::string r_text = r == nullptr ? std::to_string(defaults.r) : r->text;
    for (YamlNode& child : trial.children) resolve_multiple(child, r_text, log);
    return trial;
}

bool same_value(const YamlNode& one, const YamlNode& other) {
    return one.kind == other.kind && one.text == other.text &&
           std::equal(one.children.begin(), one.children.end(), other.children.begin(),
                      other.children.end(), same_value);
}

/// Keys in which trials differ, in the order in which they first come.
std::vector<std::string> varied_keys(const std::vector<YamlNode>& trials) {
    std::vector<std::string> varied;
    std::set<std::string> seen;
    for (const YamlNode& trial : trials) {
        for (const YamlNode& child : trial.children) {
            if (child.key == "name" || !seen.insert(child.key).second) continue;
            const bool differs = std::any_of(trials.begin(), trials.end(), [&](const YamlNode& t) {
                const YamlNode* other = t.find(child.key);
                return other == nullptr || !same_value(*other, child);
            });
            if (differs) varied.push_back(child.key);
        }
    }
    return varied;
}

void add_scalar(YamlNode& trial, const std::string& key, const std::string& text,
                const Place& place) {
    YamlNode& child = trial.children.emplace_back();
    child.kind = YamlNode::Kind::scalar;
    child.key = key;
    child.text = text;
    child.place = child.key_place = place;
}

/// Theirs, and what they say.
void name_trials(std::vector<YamlNode>& trials, const SweepSpace& space) {
    const std::vector<std::string> varied = varied_keys(trials);
    for (YamlNode& trial : trials) {
        if (trial.find("name") == nullptr) {
            std::vector<std::string> words;
            if (!space.name.empty()) words.push_back(space.name);
            for (const std::string& key : varied) {
                if (const YamlNode* value = trial.find(key)) {
                    words.push_back(word_in_name(key, *value));
                }
            }
            add_scalar(trial, "name", words.empty() ? "trial" : join(words, "-"), trial.place);
        }
        if (trial.find("trial") == nullptr) add_scalar(trial, "trial", "true", trial.place);
    }
}

std::vector<YamlNode> grid_trials(const std::vector<SweepAxis>& axes, const SweepSpace& space,
                                  const AdapterJob& defaults, ProblemLog& log) {
    std::vector<YamlNode> trials;
    const double count = combinations(axes);
    if (too_many(count, space, log)) return trials;
    for (std::size_t i = 0; i < static_cast<std::size_t>(count); ++i) {
        trials.push_back(keys_of(grid_point(axes, i), space, defaults, log));
    }
    return trials;
}

std::vector<YamlNode> random_trials(const std::vector<SweepAxis>& axes, const SweepSpace& space,
                                    const AdapterJob& defaults, ProblemLog& log) {
    constexpr std::uint64_t most_attempts = 100000;
    std::vector<YamlNode> trials;
    std::set<std::string> known;
    for (std::size_t i = 0; i < space.count; ++i) {
        bool fresh = false;
        if (static_cast<double>(i) >= combinations(axes)) break;
        for (std::uint64_t attempt = 0; !fresh && attempt < most_attempts; ++attempt) {
            YamlNode trial =
                keys_of(random_point(axes, space.seed, i, attempt), space, defaults, log);
            std::string text;
            for (const YamlNode& child : trial.children) text += word_in_name(child.key, child);
            fresh = known.insert(text).second;
            if (fresh) trials.push_back(std::move(trial));
        }
        if (!fresh) break;
    }
    if (trials.size() == space.count) return trials;
    log.add(space.place,
            cat("sweep.configurations: ", space.count, " are wanted, but the space has only ",
                trials.size(), " different ones"),
            "ask for fewer configurations, or give more values");
    return {};
}

std::vector<YamlNode> listed_trials(const SweepSpace& space, const AdapterJob& defaults,
                                    ProblemLog& log) {
    std::vector<YamlNode> trials;
    if (too_many(static_cast<double>(space.configurations->children.size()), space, log)) return {};
    for (const YamlNode& entry : space.configurations->children) {
        if (entry.kind != YamlNode::Kind::map) {
            log.add(entry.place, "sweep.configurations: an entry is not a mapping",
                    "write the keys of an adapter, as in {r: 8, learning_rate: 1.0e-4}");
            continue;
        }
        SweepSpace own = space;
        own.place = entry.place;
        trials.push_back(keys_of({multiples_of_map(entry, log)}, own, defaults, log));
    }
    return trials;
}

void read_shard(SectionReader& sweep, SweepSpace& space) {
    std::string text;
    sweep.read("shard", text);
    const YamlNode* node = sweep.find("shard");
    if (node == nullptr || node->kind != YamlNode::Kind::scalar) return;
    const char* end = text.data() + text.size();
    const auto first = std::from_chars(text.data(), end, space.shard);
    const bool slash = first.ec == std::errc{} && first.ptr != end && *first.ptr == '/';
    const auto last = slash ? std::from_chars(first.ptr + 1, end, space.shards) : first;
    if (slash && last.ec == std::errc{} && last.ptr == end && space.shard < space.shards) return;
    sweep.problem(node->place, "shard", "'" + text + "' is not a part of the trials",
                  "write 0/4 for the first of four parts, 3/4 for the last");
    space.shard = 0;
    space.shards = 1;
}

/// With `method: list`.
bool read_list(SectionReader& sweep, SweepSpace& space) {
    const YamlNode* list = sweep.find("configurations");
    if (list == nullptr || list->kind != YamlNode::Kind::list || list->children.empty()) {
        sweep.problem(list == nullptr ? sweep.place() : list->place, "configurations",
                      list == nullptr ? "is missing" : "is not a list of trials",
                      "list their keys, as in configurations: [{r: 8}, {r: 16}]");
        return false;
    }
    if (const YamlNode* other = sweep.find("space")) {
        sweep.problem(other->key_place, "space", "is given with method: list",
                      "keep configurations, or choose method: grid or random");
        return false;
    }
    space.configurations = list;
    return true;
}

bool read_map(SectionReader& sweep, SweepSpace& space) {
    space.space = sweep.find("space");
    const YamlNode* count = sweep.find("configurations");
    const bool map = space.space->kind == YamlNode::Kind::map;
    if (!map || space.space->children.empty()) {
        sweep.problem(space.space->place, "space", map ? "is empty" : "must be a mapping",
                      "give keys of an adapter with lists of values, as in space: {r: [8, 16]}");
        return false;
    }
    if (space.method == SweepMethod::grid) {
        if (count == nullptr) return true;
        sweep.problem(count->key_place, "configurations", "is given with method: grid",
                      "leave it out: a grid has all combinations; or choose method: random, which "
                      "draws so many");
        return false;
    }
    std::int64_t wanted = 0;
    sweep.require("configurations", "say how many to draw, as in configurations: 20");
    sweep.read("configurations", wanted, at_least(1));
    space.count = static_cast<std::size_t>(wanted);
    return wanted > 0;
}

}  // namespace

const OwnKey<SweepSpace> shard_key{read_shard, nullptr};

std::optional<SweepSpace> read_sweep_space(SectionReader& sweep, std::uint64_t seed,
                                           bool may_lack) {
    SweepSpace space;
    space.seed = seed;
    space.place = sweep.place();
    KeyReader reader(sweep);
    keys(reader, space);
    const bool lacks = !sweep.has("space") && !sweep.has("configurations");
    if (lacks && may_lack) return std::nullopt;
    if (space.method == SweepMethod::list) {
        return read_list(sweep, space) ? std::optional(space) : std::nullopt;
    }
    sweep.require("space", "say what to try, as in space: {r: [8, 16], learning_rate: [1.0e-4]}");
    if (!sweep.has("space") || !read_map(sweep, space)) return std::nullopt;
    if (too_many(static_cast<double>(space.count), space, sweep.context().log)) return std::nullopt;
    return space;
}

std::vector<YamlNode> expand_space(const SweepSpace& space, const AdapterJob& defaults,
                                   ProblemLog& log) {
    std::vector<YamlNode> trials;
    if (space.method == SweepMethod::list) {
        trials = listed_trials(space, defaults, log);
    } else {
        const std::optional<std::vector<SweepAxis>> axes =
            read_axes(*space.space, space.method == SweepMethod::random, log);
        if (!axes) return {};
        trials = space.method == SweepMethod::grid ? grid_trials(*axes, space, defaults, log)
                                                   : random_trials(*axes, space, defaults, log);
    }
    name_trials(trials, space);
    std::vector<YamlNode> own;
    for (std::size_t t = space.shard; t < trials.size(); t += space.shards) {
        own.push_back(std::move(trials[t]));
    }
    return own;
}

void check_sweep(const Job& job, const Place& place, ProblemLog& log) {
    bool any = false;
    std::vector<std::string> names;
    std::set<std::string> without;
    for (const AdapterJob& adapter : job.adapters) {
        any = any || adapter.trial;
        names.push_back(adapter.name);
        const DatasetJob* dataset = job.datasets.empty() ? nullptr : &job.dataset(adapter.dataset);
        if (adapter.trial && dataset != nullptr && !dataset->has_eval()) {
            without.insert(dataset->name);
        }
    }
    for (const std::string& dataset : without) {
        log.add(place, cat("sweep: dataset '", dataset, "' has no data to rank its trials by"),
                cat("give datasets.", dataset, " an eval_path or an eval_split"));
    }
    if (!job.sweep) return;
    const bool any_kto = std::any_of(
        job.adapters.begin(), job.adapters.end(),
        [](const AdapterJob& adapter) { return adapter.trial && adapter.loss.loss == Loss::kto; });
    if (any_kto && job.sweep->objective == SweepObjective::exact_match) {
        log.add(place, "sweep.objective: trials of kto have no exact_match",
                "write objective: eval_loss");
    }
    const std::string& reference = job.sweep->reference;
    if (any && !reference.empty() &&
        std::find(names.begin(), names.end(), reference) == names.end()) {
        log.add(place, cat("sweep.reference: '", reference, "' is not an adapter of this job"),
                log.hint_among(reference, names));
    }
}

}  // namespace loratrain
