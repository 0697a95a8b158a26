#include "lockstep/engine/task_graph.h"

#include <algorithm>
#include <map>
#include <new>
#include <set>
#include <tuple>

namespace lockstep {
namespace {

void add_subject(TaskGraph::Node& node, const std::string& subject) {
  if (std::ranges::find(node.subjects, subject) == node.subjects.end()) node.subjects.push_back(subject);
}

// Sorts the edges. Of several edges between the same two nodes, keeps one: a data edge if there is one.
void tidy(std::vector<TaskGraph::Edge>& edges) {
  std::ranges::sort(edges, [](const auto& a, const auto& b) {
    return std::tuple(a.from, a.to, !a.data) < std::tuple(b.from, b.to, !b.data);
  });
  const auto same = [](const auto& a, const auto& b) { return a.from == b.from && a.to == b.to; };
  edges.erase(std::unique(edges.begin(), edges.end(), same), edges.end());
}

// For each node, the nodes that have a path to it: reach[to][from].
using Reach = std::vector<std::vector<bool>>;

// Returns the edges that are not implied by a longer path. Visits the edges into each node, last predecessor first.
std::vector<TaskGraph::Edge> necessary(std::size_t nodes, const std::vector<TaskGraph::Edge>& edges) {
  std::vector<std::vector<const TaskGraph::Edge*>> into(nodes);
  for (const auto& edge : edges) into[edge.to].push_back(&edge);
  Reach reach(nodes, std::vector<bool>(nodes));
  std::vector<TaskGraph::Edge> kept;
  for (std::size_t to = 0; to < nodes; ++to) {
    // A path from `from` through another predecessor of `to` goes through a later predecessor.
    std::ranges::sort(into[to], std::greater{}, [](const auto* edge) { return edge->from; });
    for (const auto* edge : into[to]) {
      if (reach[to][edge->from]) continue;
      kept.push_back(*edge);
      for (std::size_t i = 0; i < nodes; ++i) reach[to][i] = reach[to][i] || reach[edge->from][i];
      reach[to][edge->from] = true;
    }
  }
  return kept;
}

}  // namespace

TaskGraph TaskGraphRecorder::graph() const {
  const std::lock_guard lock(mutex_);
  TaskGraph graph = graph_;
  tidy(graph.edges);
  return graph;
}

TaskGraphRecorder::Users& TaskGraphRecorder::users_of(const Resource& resource) {
  Users& users = users_[resource.state()];
  users.held = resource;
  return users;
}

void TaskGraphRecorder::connect(int from, int to, bool data) {
  if (from >= 0 && from != to) graph_.edges.push_back({from, to, data});
}

void TaskGraphRecorder::name(const Resource& resource, std::string subject) {
  const std::lock_guard lock(mutex_);
  names_[resource.state()] = {resource, std::move(subject)};
}

void TaskGraphRecorder::pushed(const Task& task) noexcept try {
  const std::lock_guard lock(mutex_);
  const int id = static_cast<int>(graph_.nodes.size());
  graph_.nodes.push_back({.lane = task.lane.index, .tasks = {{task.name, 1}}});
  const auto add_subjects = [&](const auto& resources) {
    for (const Resource& resource : resources) {
      const auto named = names_.find(resource.state());
      if (named != names_.end()) add_subject(graph_.nodes.back(), named->second.second);
    }
  };
  add_subjects(task.reads);
  add_subjects(task.writes);
  for (const Resource& resource : task.reads) {
    Users& users = users_of(resource);
    connect(users.writer, id, true);
    if (users.writer < 0) {
      for (const int before : users.former) connect(before, id, false);
    }
    users.readers.push_back(id);
  }
  for (const Resource& resource : task.writes) {
    Users& users = users_of(resource);
    for (const int before : users.readers) connect(before, id, false);
    for (const int before : users.former) connect(before, id, false);
    connect(users.writer, id, false);
    users = {.held = resource, .writer = id, .readers = {}, .former = {}};
  }
} catch (const std::bad_alloc&) {
  // As in the timeline, an entry for which there is no memory is left out.
}

void TaskGraphRecorder::succeeded(const Resource& old, const Resource& fresh) noexcept try {
  const std::lock_guard lock(mutex_);
  const Users before = users_of(old);
  Users& users = users_of(fresh);
  users.former = before.readers;
  users.former.insert(users.former.end(), before.former.begin(), before.former.end());
  if (before.writer >= 0) users.former.push_back(before.writer);
} catch (const std::bad_alloc&) {
}

TaskGraph without_implied_edges(const TaskGraph& graph) {
  TaskGraph result{graph.nodes, {}};
  std::vector<TaskGraph::Edge> data;
  std::ranges::copy_if(graph.edges, std::back_inserter(data), &TaskGraph::Edge::data);
  result.edges = necessary(graph.nodes.size(), data);

  std::vector<TaskGraph::Edge> all = graph.edges;
  std::map<int, int> last_of_lane;
  std::set<std::pair<int, int>> lane_edges;  // express the order of a lane alone
  for (int i = 0; i < static_cast<int>(graph.nodes.size()); ++i) {
    const auto [last, is_first] = last_of_lane.try_emplace(graph.nodes[i].lane, i);
    if (is_first) continue;
    lane_edges.emplace(last->second, i);
    all.push_back({std::exchange(last->second, i), i, false});
  }
  tidy(all);
  for (const auto& edge : necessary(graph.nodes.size(), all)) {
    if (!edge.data && !lane_edges.contains({edge.from, edge.to})) result.edges.push_back(edge);
  }
  tidy(result.edges);
  return result;
}

TaskGraph merge_nodes(const TaskGraph& graph, const std::function<std::string(const TaskGraph::Node&)>& key) {
  const int n = static_cast<int>(graph.nodes.size());
  std::vector<std::vector<int>> before(n);
  for (const auto& edge : graph.edges) before[edge.to].push_back(edge.from);

  std::vector<TaskGraph::Node> groups;
  std::vector<std::set<int>> after;  // groups
  std::vector<int> group_of(n);
  std::map<std::string, int> last;  // group of a key
  // Whether there is a path from `from` to one of `to`.
  const auto leads_to = [&](int from, const std::set<int>& to) {
    std::vector<bool> seen(groups.size());
    std::vector<int> pending{from};
    while (!pending.empty()) {
      const int group = pending.back();
      pending.pop_back();
      for (const int next : after[group]) {
        if (to.contains(next)) return true;
        if (!seen[next]) pending.push_back(next);
        seen[next] = true;
      }
    }
    return false;
  };
  for (int i = 0; i < n; ++i) {
    const TaskGraph::Node& node = graph.nodes[i];
    std::set<int> sources;
    for (const int b : before[i]) sources.insert(group_of[b]);
    const auto [it, is_new] = last.try_emplace(key(node), 0);
    int group = it->second;
    std::set<int> others = sources;
    others.erase(group);
    if (is_new || leads_to(group, others)) {
      group = it->second = static_cast<int>(groups.size());
      groups.push_back({.lane = node.lane, .tasks = {}, .kind = node.kind});
      after.emplace_back();
    }
    group_of[i] = group;
    for (const int source : sources) {
      if (source != group) after[source].insert(group);
    }
    auto& tasks = groups[group].tasks;
    for (const std::string& subject : node.subjects) add_subject(groups[group], subject);
    for (const auto& [name, count] : node.tasks) {
      const auto same = std::ranges::find(tasks, name, [](const auto& task) { return task.first; });
      if (same == tasks.end()) {
        tasks.emplace_back(name, count);
      } else {
        same->second += count;
      }
    }
  }

  // Order the groups so that edges lead forward: place next the first group whose predecessors are all placed.
  std::vector<int> missing(groups.size());
  for (const auto& next : after) {
    for (const int group : next) ++missing[group];
  }
  std::set<int> ready;
  for (int group = 0; group < static_cast<int>(groups.size()); ++group) {
    if (missing[group] == 0) ready.insert(group);
  }
  TaskGraph result;
  std::vector<int> place(groups.size());
  while (!ready.empty()) {
    const int group = *ready.begin();
    ready.erase(ready.begin());
    place[group] = static_cast<int>(result.nodes.size());
    result.nodes.push_back(std::move(groups[group]));
    for (const int next : after[group]) {
      if (--missing[next] == 0) ready.insert(next);
    }
  }
  for (const auto& edge : graph.edges) {
    const int from = place[group_of[edge.from]], to = place[group_of[edge.to]];
    if (from != to) result.edges.push_back({from, to, edge.data});
  }
  tidy(result.edges);
  return result;
}

}  // namespace lockstep
