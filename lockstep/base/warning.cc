#include "lockstep/base/warning.h"

#include <cstdio>
#include <mutex>
#include <set>
#include <utility>

#include "lockstep/base/printable.h"

namespace lockstep {
namespace {

// The only mutable global state in this file; see docs/decisions/43-warnings-go-to-one-handler.md.
struct WarningState {
  std::mutex mutex;
  WarningHandler handler;       // empty: the default
  std::set<std::string> known;  // the kinds that the default handler has printed
};

// Never destroyed, because threads may outlive statics.
WarningState& warning_state() {
  static auto* state = new WarningState;
  return *state;
}

}  // namespace

WarningHandler set_warning_handler(WarningHandler handler) {
  WarningState& state = warning_state();
  const std::scoped_lock lock(state.mutex);
  return std::exchange(state.handler, std::move(handler));
}

void warn(std::string kind, std::string message) {
  WarningState& state = warning_state();
  WarningHandler handler;
  {
    const std::scoped_lock lock(state.mutex);
    handler = state.handler;
    if (!handler && !state.known.insert(kind).second) return;
  }
  if (handler) return handler({std::move(kind), std::move(message)});
  // Prints the whole line in one call, so that lines of several processes do not mix.
  std::fputs(printable_text("lockstep: warning (" + kind + "): " + message + "\n").c_str(), stderr);
}

}  // namespace lockstep
