// Shows a run: TensorBoardWriter, summaries of models, curves, and timelines.
#include <pybind11/stl/filesystem.h>

#include <string>
#include <utility>

#include "lockstep/engine/engine.h"
#include "lockstep/engine/task_graph.h"
#include "module_class.h"
#include "training.h"

namespace lockstep::python {
namespace {

using Path = std::filesystem::path;

void add_tensorboard(py::module_& m) {
  py::class_<TensorBoardWriter> board(m, "TensorBoardWriter",
                                      "Writes curves, histograms, pictures, texts, and graphs for TensorBoard, as "
                                      "torch.utils.tensorboard.SummaryWriter does.");
  board.def(py::init([](const Path& folder, std::optional<std::int64_t> purge_step) {
              return new TensorBoardWriter(folder, {.purge_step = purge_step});
            }),
            "log_dir"_a, "purge_step"_a = py::none());
  board.def("add_scalar", &TensorBoardWriter::add_scalar, "tag"_a, "scalar_value"_a, "global_step"_a);
  board.def("add_histogram", &TensorBoardWriter::add_histogram, "tag"_a, "values"_a, "global_step"_a, released());
  board.def("add_text", &TensorBoardWriter::add_text, "tag"_a, "text_string"_a, "global_step"_a = 0);
  board.def("add_image", &TensorBoardWriter::add_image, "tag"_a, "img_tensor"_a, "global_step"_a = 0, released(),
            "img_tensor: [C, H, W], bytes or numbers from 0 to 1.");
  board.def("add_graph", &TensorBoardWriter::add_graph, "model"_a, "input_to_model"_a, released());
  board.def(
      "_add_plugin_data",
      [](TensorBoardWriter& b, const std::string& tag, const std::string& plugin, const py::bytes& content) {
        b.add_plugin_data(tag, plugin, std::string(content));
      },
      "tag"_a, "plugin"_a, "content"_a);
  board.def("_set_wall_time", &TensorBoardWriter::set_wall_time, "seconds"_a);
  board.def_property_readonly("path", &TensorBoardWriter::path);
  board.def(
      "flush", [](const TensorBoardWriter&) {}, "Does nothing: each event is in the file at once.");
  board.def(
      "close", [](const TensorBoardWriter&) {}, "Does nothing: each event is in the file at once.");
}

// Records the tasks that the default runtime pushes, until end().
class StepRecording {
 public:
  StepRecording() {
    check(engine().try_set_push_observer(recorder_), "StepGraph: the program records its tasks already");
  }
  ~StepRecording() { stop(); }
  StepRecording(const StepRecording&) = delete;
  StepRecording& operator=(const StepRecording&) = delete;

  // If there are more than `readable` tasks, merges those with the same name on the same device into one node.
  using Node = std::tuple<std::string, std::vector<std::pair<std::string, int>>>;  // device, tasks
  std::pair<std::vector<Node>, std::vector<std::tuple<int, int, bool>>> end(std::size_t readable) {
    stop();
    const std::vector<LaneCounters> lanes = engine().lane_counters();
    const auto device = [&](const TaskGraph::Node& node) {
      return lanes.at(static_cast<std::size_t>(node.lane)).device;
    };
    TaskGraph graph = recorder_->graph();
    if (graph.nodes.size() > readable) {
      std::erase_if(graph.edges, [](const TaskGraph::Edge& edge) { return !edge.data; });
      graph = merge_nodes(graph, [&](const TaskGraph::Node& node) { return device(node) + node.tasks[0].first; });
    }
    graph = without_implied_edges(graph);
    std::vector<Node> nodes;
    for (const TaskGraph::Node& node : graph.nodes) nodes.emplace_back(device(node), node.tasks);
    std::vector<std::tuple<int, int, bool>> edges;
    for (const TaskGraph::Edge& edge : graph.edges) edges.emplace_back(edge.from, edge.to, edge.data);
    return {nodes, edges};
  }

 private:
  static Engine& engine() { return default_runtime().engine(); }
  void stop() {
    if (std::exchange(observes_, false)) engine().set_push_observer(nullptr);
  }

  std::shared_ptr<TaskGraphRecorder> recorder_ = std::make_shared<TaskGraphRecorder>();
  bool observes_ = true;
};

}  // namespace

void add_watching(py::module_& m) {
  py::class_<StepRecording>(m, "_StepRecording", "Records which tasks follow from which, from now on.")
      .def(py::init(), released())
      .def("end", &StepRecording::end, "readable"_a, released());
  add_tensorboard(m);
  m.def(
      "_summarize",
      [](const py::object& model, const py::function& call) {
        const std::shared_ptr<Module> held = held_module(model);
        std::vector<std::tuple<std::string, std::string, py::object, py::object, std::string>> rows;
        std::vector<LayerSummary> layers;
        {
          const WithoutLock running;
          layers = summarize_layers(*held, [&] {
            const WithLock lock;
            call();
          });
        }
        for (const LayerSummary& row : layers)
          rows.emplace_back(row.name, row.kind, row.output ? size_object(*row.output) : py::none(),
                            row.parameters ? py::cast(*row.parameters) : py::none(), row.state);
        return rows;
      },
      "model"_a, "call"_a, "A row for each layer: name, kind, shape of its output, number of parameters, state.");
  m.def(
      "_summary_text",
      [](const py::object& model, const py::function& call) {
        const std::shared_ptr<Module> held = held_module(model);
        const WithoutLock running;
        return summary(*held, [&] {
          const WithLock lock;
          call();
        });
      },
      "model"_a, "call"_a);
  m.def(
      "plot_svg",
      [](const std::vector<std::vector<std::pair<std::string, std::vector<std::pair<double, double>>>>>& panels,
         const std::string& title, const std::string& x) {
        std::vector<PlotPanel> all;
        for (const auto& curves : panels) {
          PlotPanel& panel = all.emplace_back();
          for (const auto& [name, points] : curves) {
            Curve& curve = panel.curves.emplace_back(Curve{.name = name});
            for (const auto& [at, value] : points) curve.points.push_back({at, value});
          }
        }
        return plot_svg(all, {.title = title, .x = {.name = x}});
      },
      "panels"_a, "title"_a = "", "x"_a = "epoch",
      "Panels of curves (name, points), as the text of an SVG file. The points of a curve are in ascending order of "
      "x.");

  py::class_<Timeline> timeline(m, "_Timeline", "Records which task ran where and when, from now on.");
  timeline.def(py::init([] { return new Timeline(default_runtime()); }));
  timeline.def("write", &Timeline::write, "path"_a, released());
}

}  // namespace lockstep::python
