// Which of oneDNN's implementations computes a problem, and in which formats. Private to the CPU back end; only the files
// onednn_choice.cc and onednn_plan.cc include this, and with it oneDNN's header.
#pragma once

#include <array>
#include <oneapi/dnnl/dnnl.hpp>

#include "lockstep/backend/cpu/onednn_problem.h"

namespace lockstep::onednn {

struct Choice {
  // The caller's operands, by role. The primitive may want others.
  std::array<dnnl::memory::desc, kRoles> given;
  dnnl::primitive_desc primitive;
};

// Depends on the problem, the processor and oneDNN's version alone. Throws if no implementation is right.
Choice choose(const dnnl::engine& engine, const Problem& problem);

// Scratchpads belong to the caller: oneDNN's own are shared by all threads that run a primitive.
dnnl::primitive_attr caller_scratchpad();

}  // namespace lockstep::onednn
