// Chooses oneDNN's implementation for a problem, and its formats. Private to the CPU back end; only onednn_choice.cc
// and onednn_plan.cc include this, and with it oneDNN's header.
#pragma once

#include <array>
#include <oneapi/dnnl/dnnl.hpp>

#include "lockstep/backend/cpu/onednn_problem.h"

namespace lockstep::onednn {

struct Choice {
  // Formats of the caller's operands, by role. The primitive may need other formats.
  std::array<dnnl::memory::desc, kRoles> given;
  dnnl::primitive_desc primitive;
};

// The choice depends only on the problem, usable instructions, and oneDNN's version. Throws if no choice is correct.
Choice choose(const dnnl::engine& engine, const Problem& problem);

// Makes the caller provide scratchpads, because all threads that run a primitive would share oneDNN's own.
dnnl::primitive_attr caller_scratchpad();

}  // namespace lockstep::onednn
