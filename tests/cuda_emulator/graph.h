// Graphs of captured work. A launch runs the nodes in a random order that their edges allow, so that a missing edge
// shows.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <set>
#include <vector>

namespace cuda_emulator {

class Stream;

struct Graph {
  struct Node {
    std::function<void()> work;
    std::set<std::size_t> after;
  };
  std::vector<Node> nodes;

  // Whether all nodes come before the given ones or are among them.
  bool ends_in(const std::set<std::size_t>& last) const;
  void run(unsigned seed) const;
};

// From cudaStreamBeginCapture to cudaStreamEndCapture.
struct Capture {
  Graph graph;
  Stream* origin = nullptr;
  std::vector<Stream*> streams;
  bool over = false;
  bool invalid = false;  // a call was made that a capture does not allow
};

// A place in a capture: the next work comes after these nodes.
struct CapturedPlace {
  std::shared_ptr<Capture> capture;
  std::set<std::size_t> after;
};

}  // namespace cuda_emulator
