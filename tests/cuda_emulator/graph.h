// Graphs of captured work. A launch runs the nodes in an order drawn at random among those that their edges allow: a missing
// edge shows.
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

  // Whether all nodes come before, or are among, the given ones.
  bool ends_in(const std::set<std::size_t>& last) const;
  void run(unsigned seed) const;
};

// From cudaStreamBeginCapture to cudaStreamEndCapture.
struct Capture {
  Graph graph;
  Stream* origin = nullptr;
  std::vector<Stream*> streams;
  bool over = false;
  bool invalid = false;  // something was asked for that a capture has no place for
};

// A place in a capture: what is next in it comes after these nodes.
struct CapturedPlace {
  std::shared_ptr<Capture> capture;
  std::set<std::size_t> after;
};

}  // namespace cuda_emulator
