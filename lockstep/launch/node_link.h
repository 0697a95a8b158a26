// How the launchers of several hosts act as one: through the store that node 0's holds.
#pragma once

#include <chrono>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>

#include "lockstep/net/store.h"
#include "lockstep/net/time_limit.h"

namespace lockstep {

struct JobFailure {
  int status = 1;
  std::string message;
};

class NodeLink {
 public:
  NodeLink(std::shared_ptr<Store> store, int nnodes, int node_rank, std::chrono::milliseconds timeout);

  // Until the launchers of all nodes are there; they have to say the same of the job. Each start of all ranks is a
  // meeting of its own. `stop` is asked now and then, and ends it early: false. Throws which nodes did not come, or
  // that one says something else.
  bool meet(const std::string& job, const std::function<bool()>& stop);
  // The first one of all nodes is everyone's.
  void fail_all(const JobFailure& failure);
  std::optional<JobFailure> failure();
  // Someone wants the whole job to end: it does not start again on any node.
  void interrupt();
  bool interrupted();
  // This node's ranks have ended well.
  void finish();
  // Whether all nodes' have; to be asked again and again: it also shows the others that this launcher is alive, and
  // throws when another is not.
  bool all_finished();
  // Node 0 waits until the others know that all is over, since it takes the store with it.
  void part();

 private:
  std::string key(const std::string& name) const;
  std::string key(const std::string& name, int node) const;

  const std::shared_ptr<Store> store_;
  const int nnodes_, node_rank_;
  const std::chrono::milliseconds timeout_;
  int start_ = 0;
  struct Pulse {
    std::string count;
    TimeLimit limit;  // until the next one
  };
  std::map<int, Pulse> pulses_;
};

}  // namespace lockstep
