#include "lockstep/engine/task_graph.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>
#include <set>

#include "apps/lockstep/task_graph_dot.h"
#include "lockstep/engine/engine.h"

namespace lockstep {

void PrintTo(const TaskGraph::Edge& edge, std::ostream* out) {
  *out << edge.from << (edge.data ? " -> " : " - -> ") << edge.to;
}

}  // namespace lockstep

namespace lockstep::app {

namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;
using Edge = TaskGraph::Edge;

class RecordedGraph : public testing::Test {
 protected:
  Engine engine{{.serial = true}};
  LaneId a = engine.add_lane({.name = "a"}), b = engine.add_lane({.name = "b"});
  Resource x = engine.make_resource(), y = engine.make_resource(), z = engine.make_resource();
  std::shared_ptr<TaskGraphRecorder> recorder = std::make_shared<TaskGraphRecorder>();

  void SetUp() override { engine.set_push_observer(recorder); }
  void push(const char* name, LaneId lane, Resources reads, Resources writes) {
    engine.push({.name = name,
                 .lane = lane,
                 .reads = std::move(reads),
                 .writes = std::move(writes),
                 .run = [](const TaskContext&) {}});
  }
};

TEST_F(RecordedGraph, ReadersComeAfterTheWriterAndTheNextWriterAfterThem) {
  push("write", a, {}, {x});
  push("read", a, {x}, {});
  push("read too", b, {x}, {y});
  push("write again", b, {}, {x});
  push("in place", a, {x}, {x});
  const TaskGraph graph = recorder->graph();
  ASSERT_EQ(graph.nodes.size(), 5u);
  EXPECT_EQ(graph.nodes[2].lane, b.index);
  EXPECT_EQ(graph.nodes[2].tasks[0], std::pair(std::string("read too"), 1));
  EXPECT_THAT(graph.edges, ElementsAre(Edge{0, 1, true}, Edge{0, 2, true}, Edge{0, 3, false}, Edge{1, 3, false},
                                       Edge{2, 3, false}, Edge{3, 4, true}));
}

TEST_F(RecordedGraph, WhoGetsTheMemoryComesAfterItsFormerUsers) {
  push("write", a, {}, {x});
  push("read", b, {x}, {});
  const Resource fresh = engine.make_successor(engine.make_successor(x));
  push("new", a, {}, {fresh});
  push("later", a, {fresh}, {});
  EXPECT_THAT(recorder->graph().edges,
              ElementsAre(Edge{0, 1, true}, Edge{0, 2, false}, Edge{1, 2, false}, Edge{2, 3, true}));
}

TEST_F(RecordedGraph, TasksHaveTheNamesOfTheirData) {
  recorder->name(x, "weight");
  recorder->name(y, "bias");
  push("forward", a, {x, y}, {z});
  push("other", a, {z}, {});
  push("update", a, {x}, {x});
  const TaskGraph graph = recorder->graph();
  EXPECT_THAT(graph.nodes.at(0).subjects, ElementsAre("weight", "bias"));
  EXPECT_TRUE(graph.nodes.at(1).subjects.empty());
  EXPECT_THAT(graph.nodes.at(2).subjects, ElementsAre("weight"));
  const TaskGraph merged = merge_nodes(graph, [](const TaskGraph::Node&) { return "all"; });
  EXPECT_THAT(merged.nodes.at(0).subjects, ElementsAre("weight", "bias"));
}

TEST_F(RecordedGraph, HoldsWhatIsPushedWhileItObserves) {
  engine.set_push_observer(nullptr);
  push("before", a, {}, {x});
  engine.set_push_observer(recorder);
  push("in", a, {x}, {y});
  engine.set_push_observer(nullptr);
  push("after", a, {y}, {z});
  const TaskGraph graph = recorder->graph();
  ASSERT_EQ(graph.nodes.size(), 1u);
  EXPECT_TRUE(graph.edges.empty());
}

TEST_F(RecordedGraph, AWrongTaskIsNotInIt) {
  EXPECT_THROW(push("wrong", {7}, {}, {x}), Error);
  EXPECT_TRUE(recorder->graph().nodes.empty());
}

// Nodes "0", "1", ... on the given lanes.
TaskGraph make_graph(std::vector<int> lanes, std::vector<Edge> edges) {
  TaskGraph graph;
  for (std::size_t i = 0; i < lanes.size(); ++i)
    graph.nodes.push_back({.lane = lanes[i], .tasks = {{std::to_string(i), 1}}});
  graph.edges = std::move(edges);
  return graph;
}

TEST(TaskGraph, LeavesOutImpliedEdges) {
  // A result that is used twice: the second use follows from the first.
  EXPECT_THAT(without_implied_edges(make_graph({0, 1, 2}, {{0, 1, true}, {0, 2, true}, {1, 2, true}})).edges,
              ElementsAre(Edge{0, 1, true}, Edge{1, 2, true}));
  // A data edge stays where only an order is known beside it.
  EXPECT_THAT(without_implied_edges(make_graph({0, 1, 2}, {{0, 1, false}, {0, 2, true}, {1, 2, false}})).edges,
              ElementsAre(Edge{0, 1, false}, Edge{0, 2, true}, Edge{1, 2, false}));
  // A lane's own order makes no edge, unless data does.
  EXPECT_THAT(without_implied_edges(make_graph({0, 0, 0}, {{0, 1, true}, {0, 2, false}, {1, 2, false}})).edges,
              ElementsAre(Edge{0, 1, true}));
}

std::string one_key(const TaskGraph::Node&) { return "same"; }

TEST(TaskGraph, MergesNodesOfOneKey) {
  const TaskGraph merged = merge_nodes(make_graph({0, 0, 1}, {{0, 1, true}, {1, 2, true}}),
                                       [](const TaskGraph::Node& node) { return std::to_string(node.lane); });
  ASSERT_EQ(merged.nodes.size(), 2u);
  EXPECT_THAT(merged.nodes[0].tasks, ElementsAre(std::pair(std::string("0"), 1), std::pair(std::string("1"), 1)));
  EXPECT_THAT(merged.edges, ElementsAre(Edge{0, 1, true}));
}

TEST(TaskGraph, CountsTasksOfOneName) {
  TaskGraph graph = make_graph({0, 0, 0}, {});
  for (auto& node : graph.nodes) node.tasks[0].first = "sgd";
  const TaskGraph merged = merge_nodes(graph, one_key);
  ASSERT_EQ(merged.nodes.size(), 1u);
  EXPECT_THAT(merged.nodes[0].tasks, ElementsAre(std::pair(std::string("sgd"), 3)));
}

TEST(TaskGraph, DoesNotMergeAroundANodeBetween) {
  // 0 and 2 would wait for 1, which waits for them.
  const TaskGraph merged = merge_nodes(make_graph({0, 1, 0}, {{0, 1, true}, {0, 2, true}, {1, 2, true}}),
                                       [](const TaskGraph::Node& node) { return std::to_string(node.lane); });
  EXPECT_EQ(merged.nodes.size(), 3u);
  EXPECT_THAT(merged.edges, ElementsAre(Edge{0, 1, true}, Edge{0, 2, true}, Edge{1, 2, true}));
}

TEST(TaskGraph, MergedGraphsOfRandomProgramsHaveNoCircles) {
  for (int seed = 0; seed < 200; ++seed) {
    std::mt19937 random(seed);
    TaskGraph graph = make_graph({}, {});
    for (int i = 0; i < 40; ++i) {
      graph.nodes.push_back({.lane = static_cast<int>(random() % 3), .tasks = {{std::to_string(random() % 3), 1}}});
      std::set<int> sources;
      for (unsigned k = random() % 3; i > 0 && k > 0; --k) sources.insert(static_cast<int>(random()) % i);
      for (const int source : sources) {
        if (source >= 0) graph.edges.push_back({source, i, random() % 2 == 0});
      }
    }
    std::ranges::sort(graph.edges);
    const TaskGraph merged = merge_nodes(graph, [](const auto& node) { return std::to_string(node.lane); });
    EXPECT_LT(merged.nodes.size(), graph.nodes.size());
    int tasks = 0;
    for (const auto& node : merged.nodes) {
      for (const auto& task : node.tasks) tasks += task.second;
    }
    EXPECT_EQ(tasks, 40);
    for (const Edge& edge : merged.edges) EXPECT_LT(edge.from, edge.to);
    for (const Edge& edge : without_implied_edges(merged).edges) EXPECT_LT(edge.from, edge.to);
  }
}

TEST(TaskGraph, IsWrittenForGraphviz) {
  TaskGraph graph = make_graph({0, 1, 1, 0}, {{0, 1, true}, {0, 2, false}, {1, 2, true}});
  graph.nodes[0].tasks[0].first = "a \"quoted\" <name> & more";
  graph.nodes[2].tasks = {{"conv2d", 3}, {"relu", 1}};
  graph.nodes[2].kind = 1;
  graph.nodes[1].subjects = {"fc.<weight>"};
  const std::string dot = to_dot(graph, {.title = "two <devices>",
                                         .lanes = {{"cpu:0", "compute 0"}, {"cpu:1", "copy in"}},
                                         .kinds = {{"forward", "#aaccee"}, {"copy", "#ffcc00"}}});
  EXPECT_THAT(dot, HasSubstr("two &lt;devices&gt;"));
  EXPECT_THAT(dot, HasSubstr("a &quot;quoted&quot; &lt;name&gt; &amp; more"));
  EXPECT_THAT(dot, HasSubstr("<b>copy</b>"));
  EXPECT_THAT(dot, HasSubstr(R"(<br/><font point-size="9">fc.&lt;weight&gt;</font>)"));
  EXPECT_THAT(dot, HasSubstr("conv2d ×3"));
  EXPECT_THAT(dot, HasSubstr("cpu:1 copy in"));
  for (const char* arrow : {"n0 -> n1 [", "n0 -> n2 [style=dashed", "n1 -> n2 ["}) EXPECT_THAT(dot, HasSubstr(arrow));
  EXPECT_THAT(dot, Not(HasSubstr("n1 -> n3")));
}

}  // namespace
}  // namespace lockstep::app
