#include "lockstep/engine/lane.h"

#include <fmt/ranges.h>
#include <pthread.h>
#include <sched.h>

#include <algorithm>
#include <array>

namespace lockstep {
namespace {

// One cpu_set_t has room for 1,024 CPUs.
using CpuMask = std::array<cpu_set_t, 8>;

void bind_to(const std::vector<int>& cpus, const std::string& lane) {
  CpuMask wanted{};
  for (const int cpu : cpus) {
    check(cpu >= 0 && cpu < CPU_SETSIZE * static_cast<int>(wanted.size()), "add_lane: {}: there is no cpu {}", lane,
          cpu);
    CPU_SET_S(static_cast<std::size_t>(cpu), sizeof wanted, wanted.data());
  }
  // The system silently drops forbidden CPUs as long as any allowed one is left, so check the result.
  CpuMask got{};
  const bool bound = pthread_setaffinity_np(pthread_self(), sizeof wanted, wanted.data()) == 0 &&
                     pthread_getaffinity_np(pthread_self(), sizeof got, got.data()) == 0 &&
                     CPU_EQUAL_S(sizeof got, wanted.data(), got.data());
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
