#include "apps/lockstep/task_graph_dot.h"

#include <algorithm>
#include <string_view>

#include "lockstep/base/error.h"

namespace lockstep::app {
namespace {

constexpr const char* kNearColor = "#404040";
constexpr const char* kFarColor = "#1f5fbf";
constexpr const char* kOrderColor = "#a0a0a0";

// Escapes text for Graphviz's HTML-like labels and for double quotes.
std::string escape(std::string_view text) {
  std::string result;
  for (const char c : text) {
    switch (c) {
      case '&': result += "&amp;"; break;
      case '<': result += "&lt;"; break;
      case '>': result += "&gt;"; break;
      case '"': result += "&quot;"; break;
      case '\\': result += "&#92;"; break;
      default: result += static_cast<unsigned char>(c) < 0x20 ? ' ' : c;
    }
  }
  return result;
}

std::string counted(const std::pair<std::string, int>& task) {
  return escape(task.first) + (task.second > 1 ? fmt::format(" ×{}", task.second) : "");
}

// Returns what the tasks work on: "fc.weight, fc.bias", or only the number if there are many.
std::string subjects(const TaskGraph::Node& node) {
  constexpr std::size_t kMost = 2;
  if (node.subjects.empty()) return "";
  std::string text;
  if (node.subjects.size() > kMost) {
    text = fmt::format("{} parameters", node.subjects.size());
  } else {
    for (const std::string& subject : node.subjects) text += (text.empty() ? "" : ", ") + escape(subject);
  }
  return fmt::format(R"(<br/><font point-size="9">{}</font>)", text);
}

// Labels one task with its name and subjects, and several with the name of their kind.
std::string label(const TaskGraph::Node& node, const NodeKind& kind) {
  if (node.tasks.size() == 1) return counted(node.tasks[0]) + subjects(node);
  std::string text = "<b>" + escape(kind.name) + R"(</b><font point-size="9">)";
  for (const auto& task : node.tasks) text += "<br/>" + counted(task);
  return text + "</font>";
}

// Returns title and legend. The legend lists only what the picture contains.
std::string heading(const TaskGraph& graph, const TaskGraphPicture& picture, bool far_edges) {
  std::string cells;
  int columns = 0;
  for (int kind = 0; kind < static_cast<int>(picture.kinds.size()); ++kind) {
    if (std::ranges::find(graph.nodes, kind, &TaskGraph::Node::kind) == graph.nodes.end()) continue;
    const NodeKind& k = picture.kinds[kind];
    cells += fmt::format(R"(<td bgcolor="{}"> {} </td>)", escape(k.color), escape(k.name));
    ++columns;
  }
  const auto add_arrow = [&](const char* color, const char* arrow, const char* meaning) {
    cells += fmt::format(R"(<td align="right"><font color="{}"><b>{}</b></font></td><td align="left">{}</td>)", color,
                         arrow, meaning);
    columns += 2;
  };
  const bool ordered = std::ranges::find(graph.edges, false, &TaskGraph::Edge::data) != graph.edges.end();
  add_arrow(kNearColor, "→", "reads its result");
  if (far_edges) add_arrow(kFarColor, "→", "reads it on another device");
  if (ordered) add_arrow(kOrderColor, "⇢", "only comes after it");
  return fmt::format(R"(<table border="0" cellborder="0" cellspacing="6"><tr><td colspan="{}"><font point-size="16">)"
                     R"(<b>{}</b></font></td></tr><tr>{}</tr></table>)",
                     columns, escape(picture.title), cells);
}

}  // namespace

std::string to_dot(const TaskGraph& graph, const TaskGraphPicture& picture) {
  const auto device_of = [&](int node) -> const std::string& {
    return picture.lanes.at(graph.nodes[node].lane).device;
  };
  std::vector<std::string> devices;  // in the order of their lanes
  for (const auto& lane : picture.lanes) {
    if (std::ranges::find(devices, lane.device) == devices.end()) devices.push_back(lane.device);
  }

  const auto far = [&](const TaskGraph::Edge& edge) { return device_of(edge.from) != device_of(edge.to); };
  std::string dot = "digraph tasks {\n";
  dot += fmt::format("  label=<{}>; labelloc=t; fontname=\"Helvetica\"; fontsize=11;\n",
                     heading(graph, picture, std::ranges::any_of(graph.edges, far)));
  dot += "  rankdir=TB; newrank=true; nodesep=0.2; ranksep=0.3; remincross=true;\n";
  dot +=
      "  node [shape=box, style=\"filled,rounded\", color=\"#606060\", fontname=\"Helvetica\", fontsize=11,"
      " height=0.3, margin=\"0.1,0.05\"];\n";
  dot += fmt::format("  edge [arrowsize=0.6, color=\"{}\"];\n", kNearColor);
  for (std::size_t d = 0; d < devices.size(); ++d) {
    dot += fmt::format(
        "  subgraph cluster_{} {{\n    label=<<b>{}</b>>; fontsize=14;"
        " style=\"filled,rounded\"; color=\"#f2f2f2\";\n",
        d, escape(devices[d]));
    dot += fmt::format("    head{} [label=\"\", style=invis, height=0, width=0];\n", d);
    for (int i = 0; i < static_cast<int>(graph.nodes.size()); ++i) {
      if (device_of(i) != devices[d]) continue;
      const TaskGraph::Node& node = graph.nodes[i];
      const NodeKind& kind = picture.kinds.at(node.kind);
      dot += fmt::format("    n{} [label=<{}>, fillcolor=\"{}\", tooltip=\"{}\"];\n", i, label(node, kind),
                         escape(kind.color), escape(devices[d] + " " + picture.lanes[node.lane].name));
    }
    dot += "  }\n";
  }
  // Puts the columns from left to right.
  dot += "  { rank=same;";
  for (std::size_t d = 0; d < devices.size(); ++d) dot += fmt::format(" head{};", d);
  dot += " }\n";
  for (std::size_t d = 1; d < devices.size(); ++d) dot += fmt::format("  head{} -> head{} [style=invis];\n", d - 1, d);

  // Puts the first task of each column at the top.
  for (std::size_t d = 0; d < devices.size(); ++d) {
    for (int i = 0; i < static_cast<int>(graph.nodes.size()); ++i) {
      if (device_of(i) != devices[d]) continue;
      dot += fmt::format("  head{} -> n{} [style=invis, minlen=0, weight=20];\n", d, i);
      break;
    }
  }
  for (const auto& edge : graph.edges) {
    const std::string style = !edge.data  ? fmt::format("style=dashed, color=\"{}\"", kOrderColor)
                              : far(edge) ? fmt::format("color=\"{}\", penwidth=1.3", kFarColor)
                                          : "weight=3";
    dot += fmt::format("  n{} -> n{} [{}];\n", edge.from, edge.to, style);
  }
  return dot + "}\n";
}

}  // namespace lockstep::app
