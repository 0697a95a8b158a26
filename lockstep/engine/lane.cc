#include "lockstep/engine/lane.h"

#include <fmt/ranges.h>
#include <pthread.h>
#include <sched.h>

#include <algorithm>

namespace lockstep {
namespace {

void bind_to(const std::vector<int>& cpus, const std::string& lane) {
  cpu_set_t wanted;
  CPU_ZERO(&wanted);
  for (const int cpu : cpus) {
    check(cpu >= 0 && cpu < CPU_SETSIZE, "add_lane: {}: there is no cpu {}", lane, cpu);
    CPU_SET(cpu, &wanted);
  }
  // The system silently drops forbidden CPUs as long as any allowed one is left, so check the result.
  cpu_set_t got;
  CPU_ZERO(&got);
  const bool bound = pthread_setaffinity_np(pthread_self(), sizeof wanted, &wanted) == 0 &&
                     pthread_getaffinity_np(pthread_self(), sizeof got, &got) == 0 && CPU_EQUAL(&wanted, &got);
  check(bound, "add_lane: {}: the process may not use all of cpus {}", lane, fmt::join(cpus, ", "));
}

}  // namespace

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
  if (!options.cpus.empty()) bind_to(options.cpus, full_name());
}

}  // namespace lockstep
