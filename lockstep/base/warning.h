// Warnings: what a program may do on purpose, and usually does by mistake. The library calls one handler with each. The
// default prints one line to stderr for the first warning of each kind.
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

// Called on the thread that found it, possibly from several threads at once, before anything has changed: what the
// handler throws comes out of the call that warns.
using WarningHandler = std::function<void(const Warning& warning)>;

// Replaces the handler of the process and returns the former one. An empty handler is the default one.
WarningHandler set_warning_handler(WarningHandler handler);

// Calls the handler.
void warn(std::string kind, std::string message);

}  // namespace lockstep
