// Warnings about what a program may do on purpose, but usually does by mistake. The library passes each one to a
// handler. The default prints one line to stderr for the first warning of each kind.
//
//   set_warning_handler([](const Warning& w) { throw Error(w.message); });  // tests: a warning is an error
#pragma once

#include <functional>
#include <string>

#include "lockstep/base/export.h"

namespace LOCKSTEP_API lockstep {

struct Warning {
  // A name that does not change between versions, such as "stale gradient".
  std::string kind;
  // Names the operation, what was found, and what was expected, as errors do.
  std::string message;
};

// Called on the thread that found the problem, possibly on several threads at once, before anything has changed. An
// exception from the handler leaves the call that warns.
using WarningHandler = std::function<void(const Warning& warning)>;

// Replaces the handler of the process and returns the former one. An empty handler stands for the default.
WarningHandler set_warning_handler(WarningHandler handler);

// Calls the handler.
void warn(std::string kind, std::string message);

}  // namespace lockstep
