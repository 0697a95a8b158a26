#include "lockstep/engine/lane.h"

#include <fmt/ranges.h>
#include <pthread.h>

#include <algorithm>

#include "lockstep/engine/bind_thread.h"

namespace lockstep {
Lane::Lane(LaneOptions lane_options) : options(std::move(lane_options)) {}

std::string Lane::full_name() const {
  return options.device.empty() ? options.name : options.device + " " + options.name;
}

bool Lane::awaits(Ticket ticket) {
  awaited.resize(std::max<std::size_t>(awaited.size(), ticket.lane + 1));
  if (awaited[ticket.lane] >= ticket.number) return false;
  awaited[ticket.lane] = ticket.number;
  return true;
}

void Lane::start_worker() const {
  // Linux allows 15 characters.
  pthread_setname_np(pthread_self(), full_name().substr(0, 15).c_str());
  for (const int cpu : options.cpus) check(cpu >= 0, "add_lane: {}: there is no cpu {}", full_name(), cpu);
  check(options.cpus.empty() || bind_thread(options.cpus), "add_lane: {}: the process may not use all of cpus {}",
        full_name(), fmt::join(options.cpus, ", "));
}

}  // namespace lockstep
