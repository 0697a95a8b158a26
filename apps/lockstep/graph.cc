// lockstep graph: draws the tasks of one training step and their dependencies.
#include <fmt/ranges.h>
#include <sys/wait.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <memory>
#include <set>

#include "apps/lockstep/commands.h"
#include "apps/lockstep/initial_weights.h"
#include "apps/lockstep/options/data.h"
#include "apps/lockstep/options/train_options.h"
#include "apps/lockstep/output.h"
#include "apps/lockstep/ranks.h"
#include "apps/lockstep/task_graph_dot.h"
#include "lockstep/autograd/tensor_impl.h"
#include "lockstep/base/count_of.h"
#include "lockstep/base/file.h"
#include "lockstep/engine/engine.h"
#include "lockstep/engine/task_graph.h"

namespace lockstep::app {
namespace {

struct GraphOptions : TrainOptions {
  std::string out;
};

enum Kind { kCopy, kForward, kBackward, kStatistics, kGradientSum, kUpdate, kCommunication };
const std::vector<NodeKind> kKinds = {{"copy", "#f6c85f"},
                                      {"forward", "#9fd3a8"},
                                      {"backward", "#9cc3e6"},
                                      {"batch statistics of all shards", "#d9c7b8"},
                                      {"sum of gradients over shards", "#e8998d"},
                                      {"update", "#c5a3dd"},
                                      {"communication", "#f2a65a"}};

// Derives kinds from the names of tasks and lanes. Backward functions can share the names of forward ones, so tasks
// after the loss count as backward.
void set_kinds(TaskGraph& graph, const std::vector<LaneCounters>& lanes) {
  const std::vector<std::string> optimizers = optimizer_names();
  std::set<int> past_loss;  // lanes that have computed the loss
  bool updates = false;     // gradients are complete
  for (TaskGraph::Node& node : graph.nodes) {
    const std::string& name = node.tasks[0].first;
    const std::string& lane = lanes.at(static_cast<std::size_t>(node.lane)).name;
    const auto is_one_of = [&](std::initializer_list<const char*> names) {
      return std::ranges::find(names, name) != names.end();
    };
    if (lane.starts_with("communicate")) {
      node.kind = kCommunication;
    } else if (name.starts_with("copy")) {
      node.kind = kCopy;
    } else if (std::ranges::find(optimizers, name) != optimizers.end() ||
               is_one_of({"squared norm", "clip scale", "loss scale"})) {
      node.kind = kUpdate;
      updates = true;
    } else if (is_one_of({"batch norm merge", "batch norm commit"})) {
      node.kind = kStatistics;
    } else if (name == "tree sum") {
      node.kind = kGradientSum;
    } else if (updates) {
      node.kind = kUpdate;  // the norm of all gradients
    } else {
      if (name == "cross entropy") past_loss.insert(node.lane);
      const bool behind = past_loss.contains(node.lane) && name != "cross entropy";
      node.kind = behind ? kBackward : kForward;
    }
  }
}

// The gradient of a weight does not read the weight. It belongs to the forward task of the same operation that reads
// the same input.
void name_gradients(TaskGraph& graph) {
  const auto operation = [](const TaskGraph::Node& node) {
    const std::string& name = node.tasks[0].first;
    return name.substr(0, name.find(' '));
  };
  std::map<int, std::vector<int>> readers;  // of the result of each node
  for (const TaskGraph::Edge& edge : graph.edges) {
    if (edge.data) readers[edge.from].push_back(edge.to);
  }
  for (const auto& [from, tasks] : readers) {
    for (const int task : tasks) {
      TaskGraph::Node& node = graph.nodes[static_cast<std::size_t>(task)];
      if (node.kind != kBackward || !node.subjects.empty()) continue;
      for (const int other : tasks) {
        const TaskGraph::Node& forward = graph.nodes[static_cast<std::size_t>(other)];
        if (forward.kind != kForward || operation(forward) != operation(node) || forward.subjects.empty()) continue;
        node.subjects = {forward.subjects.front()};
        break;
      }
    }
  }
}

// Returns the whole graph if it is readable. Otherwise keeps only data edges, then merges tasks of one name, and
// finally merges tasks of one kind.
TaskGraph readable(TaskGraph graph, const std::vector<LaneCounters>& lanes) {
  constexpr std::size_t kReadable = 90;
  const auto place = [&](const TaskGraph::Node& node) {
    return fmt::format("{} {} ", lanes.at(static_cast<std::size_t>(node.lane)).device, node.kind);
  };
  if (graph.nodes.size() <= kReadable) return graph;
  std::erase_if(graph.edges, [](const TaskGraph::Edge& edge) { return !edge.data; });
  const auto by_name = [&](const TaskGraph::Node& node) { return place(node) + node.tasks[0].first; };
  const auto by_subject = [&](const TaskGraph::Node& node) {
    return fmt::format("{} {}", by_name(node), fmt::join(node.subjects, ","));
  };
  if (TaskGraph merged = merge_nodes(graph, by_subject); merged.nodes.size() <= kReadable) return merged;
  if (TaskGraph merged = merge_nodes(graph, by_name); merged.nodes.size() <= kReadable) return merged;
  return merge_nodes(graph, place);
}

// Names the weights that tasks use.
void name_parameters(TaskGraphRecorder& recorder, const Module& net, const std::vector<Device>& devices) {
  for (const auto& [name, parameter] : net.named_parameters()) {
    for (const Device device : devices) {
      const Tensor data = parameter.data(device);
      for (const Array& replica : data->parts) recorder.name(replica.resource(), name);
    }
  }
}

// Captures a later step, in which buffers exist and memory is reused.
TaskGraph capture_step(const GraphOptions& o, ToolJob& job) {
  constexpr std::int64_t kStep = 3;
  TrainerOptions options = o.trainer_options(job);
  options.epochs = 1;
  options.max_steps = kStep;
  // The tasks do not depend on the values of the examples.
  const std::shared_ptr<const Dataset> examples = made_up_examples(o, kStep * o.trainer.batch_size);
  auto net = make_initialized_model(o, job, stand_in_schema(o));
  auto optimizer = o.make_optimizer(net->parameters());
  Trainer trainer(*net, *optimizer, examples, nullptr, options);
  const auto recorder = std::make_shared<TaskGraphRecorder>();
  trainer.on_update = [&](std::int64_t step) {
    if (step == kStep - 1) name_parameters(*recorder, *net, job.devices());
    if (step == kStep - 1) job.runtime().engine().set_push_observer(recorder);
    if (step == kStep) job.runtime().engine().set_push_observer(nullptr);
  };
  trainer.train();
  return recorder->graph();
}

std::string svg_of_dot(const std::string& dot) {
  using File = std::unique_ptr<std::FILE, int (*)(std::FILE*)>;
  const File in(std::tmpfile(), std::fclose), out(std::tmpfile(), std::fclose);
  check(in && out && std::fputs(dot.c_str(), in.get()) >= 0 && std::fflush(in.get()) == 0,
        "graph: cannot write a temporary file");
  const int ended =
      std::system(fmt::format("command -v dot > /dev/null || exit 127; exec dot -Tsvg /dev/fd/{} > /dev/fd/{}",
                              fileno(in.get()), fileno(out.get()))
                      .c_str());
  check(!WIFEXITED(ended) || WEXITSTATUS(ended) != 127,
        "Graphviz's program dot is not installed (Debian: apt-get install graphviz); a .dot file does not need it");
  check(ended == 0, "Graphviz's program dot failed");
  std::ifstream svg(fmt::format("/dev/fd/{}", fileno(out.get())));
  return {std::istreambuf_iterator<char>(svg), {}};
}

int draw_graph(const GraphOptions& o) {
  const std::string extension = std::filesystem::path(o.out).extension().string();
  if (extension != ".dot" && extension != ".svg") {
    throw UsageError(fmt::format("--out {}: expected a name that ends in .dot or .svg", o.out));
  }
  AtomicFile file{o.out};  // reports now if it cannot be written
  ToolJob job = make_job(o);
  TaskGraph graph = capture_step(o, job);
  const std::size_t tasks = graph.nodes.size();
  const std::vector<LaneCounters> lanes = job.runtime().engine().lane_counters();
  set_kinds(graph, lanes);
  name_gradients(graph);
  const TaskGraph drawn = without_implied_edges(readable(graph, lanes));

  TaskGraphPicture picture{.title = fmt::format("One training step of {}: {} tasks, batch {} as {}", o.model.name,
                                                tasks, o.trainer.batch_size, count_of(job.shards, "shard")),
                           .kinds = kKinds};
  for (const LaneCounters& lane : lanes) picture.lanes.push_back({lane.device, lane.name});
  const std::string dot = to_dot(drawn, picture);
  file.write(extension == ".svg" ? svg_of_dot(dot) : dot);
  file.commit();
  print_out("{}: {} tasks of {} on {}, drawn as {}\n", o.out, tasks, o.model.name, str(job.devices()),
            drawn.nodes.size());
  return 0;
}

}  // namespace

Command add_graph(CLI::App& parent) {
  auto* app = parent.add_subcommand("graph", "Draw the tasks of one training step and their dependencies");
  auto options = std::make_shared<GraphOptions>();
  options->trainer.batch_size = 32;
  options->model.name = "mlp";
  options->open_shards = OpenShards::of_devices;
  options->add_to(*app, {"--model", "--context", "--layers", "--heads", "--width", "--dropout", "--batch-size",
                         "--optimizer", "--clip", "--devices", "--num-devices", "--cores-per-device",
                         "--threads-per-shard", "--shards", "--dtype", "--tf32", "--direct-conv"});
  app->get_option("--shards")->description("V: number of shards per batch [one per device]");
  app->get_option("--threads-per-shard")->description("T: CPU threads that compute one shard [1]");
  app->get_option("--batch-size")->description("Examples per batch, over all devices");
  app->get_option("--optimizer")->description("Optimizer of the step");
  app->add_option("--out", options->out, "Write the picture to FILE.dot, or to FILE.svg, which needs Graphviz")
      ->required()
      ->type_name("FILE")
      ->group("Output");
  return [options, app] {
    check_single_process("graph");
    options->choose_defaults(*app);
    return draw_graph(*options);
  };
}

}  // namespace lockstep::app
