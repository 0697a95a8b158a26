// Lets the launchers of several hosts act as one, through the store of node 0.
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
  // The rank's last line of error output, if the rank ended by itself and the line names a step. A failure that comes
  // back at the same step will come again.
  std::string cause = {};
};

class NodeLink {
 public:
  NodeLink(std::shared_ptr<Store> store, int nnodes, int node_rank, std::chrono::milliseconds timeout);

  // Waits until the launchers of all nodes have joined. They must agree on the job's description. Each start of all
  // ranks is a meeting of its own. `stop` is polled and ends the wait early; meet() then returns false. Throws if nodes
  // are missing after `limit`, or disagree.
  bool meet(const std::string& job, const std::function<bool()>& stop, std::chrono::milliseconds limit);
  // The first failure on any node counts for all.
  void fail_all(const JobFailure& failure);
  std::optional<JobFailure> failure();
  // The user wants the whole job to end. No node restarts it.
  void interrupt();
  bool interrupted();
  // This node's ranks have ended well.
  void finish();
  // Whether all nodes have finished. Call it repeatedly: it also shows the others that this launcher is alive, and
  // throws if another one is not.
  bool all_finished();
  // Node 0 waits until the others know that the job is over, because its store ends with it.
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
    TimeLimit limit;  // for the next pulse
  };
  std::map<int, Pulse> pulses_;
};

}  // namespace lockstep
