// Groups over every transport for tests. Ranks are threads here, for every kind of connection. MPI's ranks (tests/mpi)
// are processes that each make only their own group.
#pragma once

#include <gtest/gtest.h>

#include <chrono>
#include <exception>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "lockstep/comm/process_group.h"
#include "lockstep/net/store.h"

namespace lockstep::testing {

std::shared_ptr<Store> make_memory_store();

struct ConformanceCase {
  std::string backend;
  int ranks;
};
inline void PrintTo(const ConformanceCase& c, std::ostream* os) { *os << c.ranks << " ranks, " << c.backend; }
// The cases of the conformance suite.
std::vector<ConformanceCase> conformance_cases();

// Makes one group for each rank. Back ends: "local", "shared_memory", "tcp".
std::vector<std::shared_ptr<ProcessGroup>> make_groups(
    const std::string& backend, int ranks, std::chrono::milliseconds progress_timeout = std::chrono::seconds(20),
    std::chrono::milliseconds timeout = std::chrono::seconds(20));

// Runs `body` for every rank on its own thread. Rethrows the first rank's exception.
void on_all_ranks(std::vector<std::shared_ptr<ProcessGroup>>& groups, const std::function<void(ProcessGroup&)>& body);

// The error that each rank's body threw, or "".
std::vector<std::string> errors_on_all_ranks(std::vector<std::shared_ptr<ProcessGroup>>& groups,
                                             const std::function<void(ProcessGroup&)>& body);

template <typename T>
CommBuffer buffer(std::vector<T>& values) {
  return {values.data(), values.size(), dtype_of<T>};
}

}  // namespace lockstep::testing
