// Records which task ran where and when, as `lockstep train --trace` does, for programs of your own.
//
//   Timeline timeline(runtime);
//   ...                              // some steps
//   timeline.write("timeline.json");   // Chrome's trace-event format: open it in Perfetto, ui.perfetto.dev
#pragma once

#include <filesystem>
#include <memory>

#include "lockstep/runtime/runtime.h"

namespace LOCKSTEP_API lockstep {

class Trace;  // engine/trace.h

// Records from its construction to its destruction. Each lane keeps its last 65,536 tasks. The Runtime must outlive it.
// Throws if the Runtime records another timeline.
class Timeline {
 public:
  explicit Timeline(Runtime& runtime);
  ~Timeline();
  Timeline(const Timeline&) = delete;
  Timeline& operator=(const Timeline&) = delete;

  // Waits for all work and writes what has been recorded. Replaces the file as a whole. Throws if it cannot write the
  // file, or the first failure that no wait has thrown yet.
  void write(const std::filesystem::path& path) const;
  // Returns what has been recorded so far.
  const Trace& trace() const { return *trace_; }

 private:
  Runtime& runtime_;
  std::shared_ptr<Trace> trace_;
};

}  // namespace lockstep
