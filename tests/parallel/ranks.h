// Jobs whose ranks are threads, each with its own runtime.
#pragma once

#include <gtest/gtest.h>

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "lockstep/nn/activations.h"
#include "lockstep/nn/linear.h"
#include "lockstep/nn/sequential.h"
#include "lockstep/parallel/job.h"
#include "lockstep/runtime/runtime.h"

namespace lockstep {

// Everything one rank has.
struct Rank {
  Runtime runtime;
  std::shared_ptr<ProcessGroup> group;
  std::shared_ptr<Communicator> communicator;

  Rank(std::shared_ptr<ProcessGroup> g, int devices)
      : runtime({.cpu_devices = devices, .threads_per_shard = 1}), group(g),
        communicator(std::make_shared<Communicator>(runtime, g)) {}
  int rank() const { return group->rank(); }
};

// The error of each rank; "" if it had none.
inline std::vector<std::string> run_ranks(int world, const std::function<void(Rank&)>& body, int devices = 1,
                                          std::chrono::milliseconds timeout = std::chrono::seconds(60)) {
  auto groups = make_local_groups(world, timeout);
  std::vector<std::string> errors(groups.size());
  std::vector<std::thread> threads;
  for (std::size_t r = 0; r < groups.size(); ++r) {
    threads.emplace_back([&, r] {
      Rank rank(groups[r], devices);
      try {
        body(rank);
      } catch (const std::exception& error) {
        errors[r] = error.what();
        rank.communicator->abort(error.what());
      }
    });
  }
  for (std::thread& t : threads) t.join();
  return errors;
}

inline void expect_fine(const std::vector<std::string>& errors) {
  for (std::size_t r = 0; r < errors.size(); ++r) EXPECT_EQ(errors[r], "") << "rank " << r;
}

inline std::unique_ptr<Sequential> two_layers(std::int64_t hidden = 8) {
  auto net = std::make_unique<Sequential>();
  net->append<Linear>(LinearOptions{.in_features = 4, .out_features = hidden}).append<ReLU>();
  net->append<Linear>(LinearOptions{.in_features = hidden, .out_features = 2});
  return net;
}

}  // namespace lockstep
