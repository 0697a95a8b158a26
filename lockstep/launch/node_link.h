// Internal: lets the launchers of several hosts agree on starts, failures, and the end of a job, through the store of
// node 0.
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
  // The rank's last line of error output, if the rank ended by itself and the line names a step. If two starts in a row
  // end with the same line, a third one would, too.
  std::string cause = {};
};

class NodeLink {
 public:
  NodeLink(std::shared_ptr<Store> store, int nnodes, int node_rank, std::chrono::milliseconds timeout);

  // Waits until the launchers of all nodes have joined. Call it before each start of the ranks. The launchers must
  // agree on the job's description. meet() polls `stop`, and returns false when it is true. Throws if nodes are missing
  // after `limit`, or disagree.
  bool meet(const std::string& job, const std::function<bool()>& stop, std::chrono::milliseconds limit);
  // The first failure on any node counts for all.
  void fail_all(const JobFailure& failure);
  std::optional<JobFailure> failure();
  // Tells all nodes that the user wants the whole job to end, so that no node restarts it.
  void interrupt();
  bool interrupted();
  // Tells the other nodes that this node's ranks have ended well.
  void finish();
  // Whether all nodes have finished. Call it repeatedly: each call sends a heartbeat to the other launchers, and throws
  // if the heartbeats of another launcher have stopped.
  bool all_finished();
  // Call it last. Node 0 waits, at most 5 s, until the other nodes know that the job is over, because the store ends
  // with node 0's launcher.
  void leave();

 private:
  std::string key(const std::string& name) const;
  std::string key(const std::string& name, int node) const;

  const std::shared_ptr<Store> store_;
  const int nnodes_, node_rank_;
  const std::chrono::milliseconds timeout_;
  int start_ = 0;
  struct Heartbeat {
    std::string count;
    TimeLimit limit;  // limit of the wait for the next heartbeat
  };
  std::map<int, Heartbeat> heartbeats_;
};

}  // namespace lockstep
