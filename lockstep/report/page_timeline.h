// Internal: the timeline of some steps for the page of a run.
#pragma once

#include "lockstep/engine/trace.h"
#include "lockstep/report/page.h"

namespace lockstep {

// Summarizes the records that begin in [begin_ns, end_ns), the time of `steps` steps, and draws the last 1 / steps of
// it. Leaves `what` empty.
PageTimeline describe_timeline(const Trace& trace, std::int64_t begin_ns, std::int64_t end_ns, std::int64_t steps);

}  // namespace lockstep
