#include <fmt/core.h>

#include <algorithm>
#include <memory>

#include "apps/lockstep/options/common_options.h"
#include "bench/parallel.h"
#include "lockstep/base/random.h"
#include "lockstep/ops/copy.h"
#include "lockstep/ops/elementwise.h"
#include "lockstep/ops/matmul.h"

namespace lockstep::app {
namespace {

// Computes y = (a b + c) / 2 from earlier nodes.
struct Node {
  int device = 0;
  int inputs[3] = {};  // index of a node; a negative number stands for a start value
};

constexpr int kDevices = 2, kStarts = 4;

// Inputs come from recent nodes, so that the graph is long as well as wide.
std::vector<Node> random_graph(int count) {
  constexpr int kReach = 12;
  const RandomKey key = random_key(1, {});
  std::uint64_t draw = 0;
  std::vector<Node> nodes(static_cast<std::size_t>(count));
  for (int i = 0; i < count; ++i) {
    Node& node = nodes[static_cast<std::size_t>(i)];
    node.device = static_cast<int>(random_below(key, draw++, kDevices));
    const int first = std::max(-kStarts, i - kReach);
    for (int& input : node.inputs) {
      input = first + static_cast<int>(random_below(key, draw++, static_cast<std::uint64_t>(i - first)));
    }
  }
  return nodes;
}

// Returns the number of edges between devices.
int crossings(const std::vector<Node>& nodes) {
  int n = 0;
  for (const Node& node : nodes) {
    for (const int input : node.inputs) n += input >= 0 && nodes[static_cast<std::size_t>(input)].device != node.device;
  }
  return n;
}

// Returns the length of a run, in nodes, if each device computes its nodes in order and copies take no time.
int shortest_time(const std::vector<Node>& nodes) {
  std::vector<int> end(nodes.size());
  int free[kDevices] = {};
  for (std::size_t i = 0; i < nodes.size(); ++i) {
    int& time = free[nodes[i].device];
    for (const int input : nodes[i].inputs) {
      if (input >= 0) time = std::max(time, end[static_cast<std::size_t>(input)]);
    }
    end[i] = ++time;
  }
  return *std::ranges::max_element(free);
}

Experiment graph(const std::vector<Device>& devices, const std::vector<Node>& nodes, std::int64_t size) {
  struct Values {
    std::vector<Array> starts, nodes;
  };
  auto values = std::make_shared<Values>();
  for (std::uint64_t s = 0; s < kStarts; ++s) {
    values->starts.push_back(ops::to_device(random_matrix(size, s), devices[s % kDevices]));
  }
  values->nodes.resize(nodes.size());
  auto push = [devices, values, nodes](int i) {
    const Node& node = nodes[static_cast<std::size_t>(i)];
    const Device device = devices[static_cast<std::size_t>(node.device)];
    auto input = [&](int which) {
      const int from = node.inputs[which];
      const Array& x = from < 0 ? values->starts[static_cast<std::size_t>(-1 - from)]
                                : values->nodes[static_cast<std::size_t>(from)];
      return ops::to_device(x, device, {.non_blocking = true});
    };
    const Array sum = ops::binary(BinaryOp::add, ops::matmul(input(0), input(1)), input(2));
    values->nodes[static_cast<std::size_t>(i)] = ops::affine(sum, 0.5, 0);
  };
  return {.parts = {{"graph", static_cast<int>(nodes.size()), push}}, .results = [values] { return values->nodes; }};
}

}  // namespace

void measure_dag(const ParallelOptions& o, const BenchOptions& common, Report& report) {
  constexpr std::int64_t kSize = 384;
  constexpr int kCount = 200;
  const std::int64_t size = o.work.size > 0 ? o.work.size : kSize;
  const std::vector<Node> nodes = random_graph(o.work.count > 0 ? o.work.count : kCount);
  const Place place = place_of(o.place, kDevices);
  if (place.count() != kDevices) {
    throw UsageError(fmt::format("--experiment dag: --devices {} names {} devices, expected {}", place.list,
                                 place.count(), kDevices));
  }
  auto build = [&](Runtime& r) { return graph(r.devices(place.list), nodes, size); };
  const RuntimeOptions threaded = place.runtime;
  RuntimeOptions serial = threaded;
  serial.serial = true;
  compare_variants(fmt::format("{} of (a b + c) / 2, {} x {}, on {}, {} of {} edges between the devices",
                               count_of(static_cast<int>(nodes.size()), "node"), size, size, place.title,
                               crossings(nodes), 3 * nodes.size()),
                   {{"serial engine", serial, build}, {"threaded engine", threaded, build}}, o.place.trace, common,
                   report);
  report.note(
      fmt::format("The graph allows {:.2f} at best, since each device idles while it waits for the other's nodes.",
                  static_cast<double>(nodes.size()) / shortest_time(nodes)));
  if (core_count() < place.cpus * o.place.cores_per_device) {
    report.note(
        fmt::format("This process has {} for {}: they take turns.", count_of(core_count(), "core"), place.title));
  }
}

}  // namespace lockstep::app
