#include "lockstep/engine/task_graph_dot.h"

#include <algorithm>
#include <set>
#include <string_view>

#include "lockstep/base/error.h"

namespace lockstep {
namespace {

// In Graphviz's HTML-like labels, and in double quotes.
std::string escape(std::string_view text) {
  std::string result;
  for (const char c : text) {
    switch (c) {
      case '&':
        result += "&amp;";
        break;
      case '<':
        result += "&lt;";
        break;
      case '>':
        result += "&gt;";
        break;
      case '"':
        result += "&quot;";
        break;
      case '\\':
        result += "&#92;";
        break;
      default:
        result += static_cast<unsigned char>(c) < 0x20 ? ' ' : c;
    }
  }
  return result;
}

std::string counted(const std::pair<std::string, int>& task) {
  return escape(task.first) + (task.second > 1 ? fmt::format(" ×{}", task.second) : "");
}

// One task by its name; several under their kind's name.
std::string label(const TaskGraph::Node& node, const TaskKind& kind) {
  if (node.tasks.size() == 1) return counted(node.tasks[0]);
  std::string text = "<b>" + escape(kind.name) + R"(</b><font point-size="9">)";
  for (const auto& task : node.tasks) text += "<br/>" + counted(task);
  return text + "</font>";
}

std::string legend(const std::vector<TaskKind>& kinds) {
  std::string rows;
  for (const TaskKind& kind : kinds) {
    rows += fmt::format(R"(<tr><td bgcolor="{}" width="24"></td><td align="left">{}</td></tr>)",
                        escape(kind.color), escape(kind.name));
  }
  constexpr const char* kArrow = R"(<tr><td><font color="{}">{}</font></td><td align="left">{}</td></tr>)";
  rows += fmt::format(kArrow, "#404040", "→", "reads its result");
  rows += fmt::format(kArrow, "#1f5fbf", "→", "reads it on another device");
  rows += fmt::format(kArrow, "#a0a0a0", "⇢", "only comes after it");
  return R"(<table border="0" cellborder="0" cellspacing="3">)" + rows + "</table>";
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

  std::string dot = "digraph tasks {\n";
  dot += fmt::format("  label=<<b>{}</b>>; labelloc=t; fontsize=16; fontname=\"Helvetica\";\n",
                     escape(picture.title));
  dot += "  rankdir=TB; newrank=true; nodesep=0.2; ranksep=0.3; remincross=true;\n";
  dot +=
      "  node [shape=box, style=\"filled,rounded\", color=\"#606060\", fontname=\"Helvetica\", fontsize=11,"
      " height=0.3, margin=\"0.1,0.05\"];\n";
  dot += "  edge [arrowsize=0.6, color=\"#404040\"];\n";
  // The heads of the columns, from left to right.
  for (std::size_t d = 0; d < devices.size(); ++d) {
    dot += fmt::format("  subgraph cluster_{} {{\n    style=\"filled,rounded\"; color=\"#f2f2f2\";\n", d);
    dot += fmt::format("    head{} [label=<<b>{}</b>>, shape=plaintext, style=\"\", fontsize=14];\n", d,
                       escape(devices[d]));
    for (int i = 0; i < static_cast<int>(graph.nodes.size()); ++i) {
      if (device_of(i) != devices[d]) continue;
      const TaskGraph::Node& node = graph.nodes[i];
      const TaskKind& kind = picture.kinds.at(picture.kind_of(node));
      dot += fmt::format("    n{} [label=<{}>, fillcolor=\"{}\", tooltip=\"{}\"];\n", i, label(node, kind),
                         escape(kind.color), escape(devices[d] + " " + picture.lanes[node.lane].name));
    }
    dot += "  }\n";
  }
  dot += fmt::format("  legend [label=<{}>, shape=plaintext, style=\"\", fontsize=10];\n",
                     legend(picture.kinds));
  dot += "  { rank=same;";
  for (std::size_t d = 0; d < devices.size(); ++d) dot += fmt::format(" head{};", d);
  dot += " legend; }\n";
  for (std::size_t d = 0; d < devices.size(); ++d) {
    dot += fmt::format("  head{} -> {} [style=invis];\n", d,
                       d + 1 < devices.size() ? fmt::format("head{}", d + 1) : "legend");
  }

  std::set<int> not_first;
  for (const auto& edge : graph.edges) not_first.insert(edge.to);
  for (int i = 0; i < static_cast<int>(graph.nodes.size()); ++i) {
    if (not_first.contains(i)) continue;
    const auto d = std::ranges::find(devices, device_of(i)) - devices.begin();
    dot += fmt::format("  head{} -> n{} [style=invis];\n", d, i);
  }
  for (const auto& edge : graph.edges) {
    const bool far = device_of(edge.from) != device_of(edge.to);
    const char* style = !edge.data ? "style=dashed, color=\"#a0a0a0\", constraint=true"
                        : far      ? "color=\"#1f5fbf\", penwidth=1.3"
                                   : "weight=3";
    dot += fmt::format("  n{} -> n{} [{}];\n", edge.from, edge.to, style);
  }
  return dot + "}\n";
}

}  // namespace lockstep
