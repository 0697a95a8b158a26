#include "lockstep/runtime/timeline.h"

#include <sstream>

#include "lockstep/base/file.h"
#include "lockstep/engine/engine.h"
#include "lockstep/engine/trace.h"

namespace lockstep {

Timeline::Timeline(Runtime& runtime) : runtime_(runtime), trace_(std::make_shared<Trace>()) {
  check(!runtime_.engine().tracing(), "timeline: this Runtime records another one, expected one at a time");
  runtime_.engine().set_trace(trace_);
}

Timeline::~Timeline() { runtime_.engine().set_trace(nullptr); }

void Timeline::write(const std::filesystem::path& path) const {
  runtime_.synchronize();
  std::ostringstream text;
  trace_->write_json(text);
  write_file_atomically(path, text.str());
}

}  // namespace lockstep
