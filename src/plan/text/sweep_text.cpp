#include "plan/text/sweep_text.h"

#include <vector>

#include "plan/text/yaml_values.h"

namespace loratrain {

namespace {

using namespace plan_yaml;

std::string shape_text(const SweepShape& shape) {
    return cat("{tensor: ", shape.tensor, ", stages: ", shape.stages,
               ", replicas: ", shape.replicas, ", microbatch_tokens: ", shape.microbatch_tokens,
               "}");
}

SweepShape read_shape(const YAML::Node& node) {
    const Map map(node);
    SweepShape shape;
    map.read("tensor", shape.tensor);
    map.read("stages", shape.stages);
    map.read("replicas", shape.replicas);
    map.read("microbatch_tokens", shape.microbatch_tokens);
    return shape;
}

std::string trials_text(const std::vector<AdapterId>& queue) {
    std::vector<std::int32_t> trials;
    trials.reserve(queue.size());
    for (const AdapterId id : queue) trials.push_back(number(id));
    return numbers(trials);
}

void read_queue(const YAML::Node& node, SweepPlan& plan) {
    const Map map(node);
    map.read("seconds", plan.queue_seconds.emplace_back());
    std::vector<AdapterId>& queue = plan.queues.emplace_back();
    for (const auto id : parse_numbers<std::int32_t>(map.at("trials"))) {
        queue.push_back(static_cast<AdapterId>(id));
    }
}

}  // namespace

std::string to_text(const SweepPlan& plan) {
    std::string text =
        cat("shape: ", shape_text(plan.shape), "\nseconds: ", format_exact(plan.seconds),
            "\nbound: ", format_exact(plan.bound), "\nstaying: ", format_exact(plan.staying),
            "\nar: ", format_exact(plan.ar), "\nqueues:\n");
    for (std::size_t g = 0; g < plan.queues.size(); ++g) {
        text += cat("- {seconds: ", format_exact(plan.queue_seconds[g]),
                    ", trials: ", trials_text(plan.queues[g]), "}\n");
    }
    return text;
}

SweepPlan sweep_plan_from_text(const std::string& text) {
    return parse(text, [](const YAML::Node& root) {
        const Map map(root);
        SweepPlan plan;
        plan.shape = read_shape(map.at("shape"));
        map.read("seconds", plan.seconds);
        map.read("bound", plan.bound);
        map.read("staying", plan.staying);
        map.read("ar", plan.ar);
        for (const auto& node : map.at("queues")) read_queue(node, plan);
        if (std::ssize(plan.queues) != plan.shape.replicas) fail("a queue for each replica");
        return plan;
    });
}

}  // namespace loratrain
