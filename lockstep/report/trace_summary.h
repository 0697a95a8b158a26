// Internal: a timeline in numbers: where the time went, how busy each lane was, how much communication was hidden.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/engine/trace.h"

namespace lockstep {

struct TraceSummary {
  struct Operation {
    std::string name;
    std::int64_t count = 0;
    std::chrono::nanoseconds total{0};
  };
  // The longest total first.
  std::vector<Operation> operations;

  struct Lane {
    Trace::LaneName name;
    std::int64_t tasks = 0;
    std::chrono::nanoseconds busy{0};
  };
  std::vector<Lane> lanes;
  std::int64_t tasks = 0;

  // Time in which a lane whose name begins with "communicate" had a task, and the part of it in which no lane whose
  // name begins with "compute" had one. Communication makes a step longer by that part.
  std::chrono::nanoseconds communication{0};
  std::chrono::nanoseconds exposed{0};
  // Share of the communication that computation hides: 1 - exposed / communication. Empty without communication.
  std::optional<double> hidden() const;
};

// Summarizes the records that begin in [begin_ns, end_ns), counted from the trace's start.
TraceSummary summarize(const Trace& trace, std::int64_t begin_ns, std::int64_t end_ns);

}  // namespace lockstep
