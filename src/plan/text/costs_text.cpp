#include "plan/text/costs_text.h"

#include <cstddef>

namespace loratrain::plan_yaml {

namespace {

// ---- writing

std::string line_text(const CostLine& line) {
    return cat("[", format_exact(line.fixed), ", ", format_exact(line.per_token), ", ",
               format_exact(line.per_square), ", ", format_exact(line.per_segment), "]");
}

std::string pair_text(double first, double second) {
    return cat("[", format_exact(first), ", ", format_exact(second), "]");
}

std::string link_text(const LinkCost& link) {
    return pair_text(link.fixed, link.per_byte);
}

std::string host_text(const HostCosts& host) {
    const auto line = [](const HostLine& of) { return pair_text(of.fixed, of.per_segment); };
    const auto shapes = [](const NewShapeLine& of) {
        return cat("[", format_exact(of.each), ", ", format_exact(of.first), ", ", of.met, ", ",
                   format_exact(of.per_row), "]");
    };
    return cat("{layer_forward: ", line(host.layer_forward),
               ", layer_backward: ", line(host.layer_backward),
               ",\n    forward: ", line(host.forward), ", backward: ", line(host.backward),
               ", head: ", format_exact(host.head), ",\n    new_rows: ", shapes(host.new_rows),
               ", new_targets: ", shapes(host.new_targets), "}");
}

// ---- reading

std::vector<double> read_doubles(const YAML::Node& node, std::size_t count) {
    std::vector<double> values = parse_numbers<double>(node);
    if (values.size() != count) fail(cat("expected ", count, " numbers, got ", values.size()));
    return values;
}

CostLine read_line(const YAML::Node& node) {
    constexpr std::size_t before = 3;  // in plans of before
    const std::size_t count = parse_numbers<double>(node).size() == before ? before : before + 1;
    const std::vector<double> values = read_doubles(node, count);
    return {values[0], values[1], values[2], count > before ? values[before] : 0.0};
}

LinkCost read_link(const YAML::Node& node) {
    const std::vector<double> values = read_doubles(node, 2);
    return {values[0], values[1]};
}

HostLine read_host_line(const YAML::Node& node) {
    const std::vector<double> values = read_doubles(node, 2);
    return {values[0], values[1]};
}

NewShapeLine read_new_shapes(const YAML::Node& node) {
    constexpr std::size_t before = 3;  // in plans of before
    const std::size_t count = parse_numbers<double>(node).size() == before ? before : before + 1;
    const std::vector<double> values = read_doubles(node, count);
    return {values[0], values[1], static_cast<std::int32_t>(values[2]),
            count > before ? values[before] : 0.0};
}

HostCosts read_host(const Map& map) {
    HostCosts host;
    host.layer_forward = read_host_line(map.at("layer_forward"));
    host.layer_backward = read_host_line(map.at("layer_backward"));
    host.forward = read_host_line(map.at("forward"));
    host.backward = read_host_line(map.at("backward"));
    map.read("head", host.head);
    host.new_rows = read_new_shapes(map.at("new_rows"));
    host.new_targets = read_new_shapes(map.at("new_targets"));
    return host;
}

}  // namespace

std::string costs_text(const CostModel& c) {
    return cat("{layer_forward: ", line_text(c.layer_forward),
               ",\n  layer_backward: ", line_text(c.layer_backward),
               ", first_layer_saving: ", format_exact(c.first_layer_saving),
               ",\n  head: ", line_text(c.head), ",\n  host: ", host_text(c.host),
               ",\n  step: ", pair_text(c.step_fixed, c.step_per_parameter),
               ", message: ", link_text(c.message),
               c.between_hosts ? ", between_hosts: " + link_text(*c.between_hosts) : "",
               c.layer_transfer == 0.0 ? "" : ", layer_transfer: " + format_exact(c.layer_transfer),
               c.layer_traffic == 0.0 ? "" : ", layer_traffic: " + format_exact(c.layer_traffic),
               c.link_power == 0.0 ? "" : ", link_power: " + format_exact(c.link_power),
               c.offload_per_token == 0.0
                   ? ""
                   : ", offload_per_token: " + format_exact(c.offload_per_token),
               ",\n  full_speed_ranks: ", format_exact(c.full_speed_ranks),
               ", ranks_per_host: ", c.ranks_per_host, ",\n  source: ", in_quotes(c.source), "}\n");
}

std::string other_costs_text(const std::vector<DegreeCosts>& others) {
    if (others.empty()) return "";
    std::string text = "other_costs:  # of replicas with other numbers of lanes\n";
    for (const DegreeCosts& other : others) {
        text += cat("- tensor: ", other.tensor, "\n  costs:\n  ", costs_text(other.costs));
    }
    return text;
}

CostModel read_costs(const Map& map) {
    CostModel costs;
    costs.layer_forward = read_line(map.at("layer_forward"));
    costs.layer_backward = read_line(map.at("layer_backward"));
    map.read("first_layer_saving", costs.first_layer_saving);
    costs.head = read_line(map.at("head"));
    if (map.has("host")) {  // plans of before have none
        const YAML::Node host = map.at("host");
        costs.host = read_host(Map(host));
    }
    const std::vector<double> step = read_doubles(map.at("step"), 2);
    costs.step_fixed = step[0];
    costs.step_per_parameter = step[1];
    costs.message = read_link(map.at("message"));
    if (map.has("between_hosts")) costs.between_hosts = read_link(map.at("between_hosts"));
    map.read_any("layer_transfer", costs.layer_transfer);
    map.read_any("layer_traffic", costs.layer_traffic);
    map.read_any("link_power", costs.link_power);
    map.read_any("offload_per_token", costs.offload_per_token);
    map.read("full_speed_ranks", costs.full_speed_ranks);
    map.read("ranks_per_host", costs.ranks_per_host);
    map.read("source", costs.source);
    return costs;
}

DegreeCosts read_degree(const Map& map) {
    DegreeCosts degree;
    map.read("tensor", degree.tensor);
    const YAML::Node costs = map.at("costs");
    degree.costs = read_costs(Map(costs));
    return degree;
}

}  // namespace loratrain::plan_yaml
