// Groups of every back end for tests: ranks are threads here, however they are connected. Those of MPI are processes
// (tests/mpi), each with its own group alone.
#pragma once

#include <gtest/gtest.h>

#include <chrono>
#include <exception>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "lockstep/comm/process_group.h"

namespace lockstep::testing {

std::shared_ptr<Store> make_memory_store();

struct ConformanceCase {
  std::string backend;
  int ranks;
};
// What the conformance suite is run over.
std::vector<ConformanceCase> conformance_cases();

// As many groups, one for each rank. Back ends: "local", "shared_memory", "tcp".
std::vector<std::shared_ptr<ProcessGroup>> make_groups(
    const std::string& backend, int ranks, std::chrono::milliseconds progress_timeout = std::chrono::seconds(20),
    std::chrono::milliseconds timeout = std::chrono::seconds(20));

// Runs `body` for every rank on a thread of its own. The first rank's exception is thrown on.
void on_all_ranks(std::vector<std::shared_ptr<ProcessGroup>>& groups, const std::function<void(ProcessGroup&)>& body);

// What each rank's body threw: its text, or "" if it did not.
std::vector<std::string> errors_on_all_ranks(std::vector<std::shared_ptr<ProcessGroup>>& groups,
                                             const std::function<void(ProcessGroup&)>& body);

template <typename T>
CommBuffer buffer(std::vector<T>& values) {
  return {values.data(), values.size(), dtype_of<T>};
}

}  // namespace lockstep::testing
