// A rank that fails, or one that others wait for: `mpi_rank abort|silent|busy|stopped|leaves|leaves_a_stopped_one`.
// Prints the error of each waiting rank, after its number.
#include <signal.h>
#include <unistd.h>

#include <cstdio>
#include <string>
#include <thread>

#include "lockstep/comm/process_group.h"

namespace {

// Somebody else has to wake it.
void stop_for_a_while() {
  const pid_t self = ::getpid();
  if (::fork() == 0) {
    ::sleep(6);
    ::kill(self, SIGCONT);
    ::_exit(0);
  }
  ::kill(self, SIGSTOP);
}

}  // namespace

int main(int argc, char** argv) {
  using namespace lockstep;
  using namespace std::chrono_literals;
  const std::string what = argc > 1 ? argv[1] : "";
  int rank = -1;  // not known yet
  try {
    const bool waits_long = what == "abort" || what == "none";
    auto group = init_process_group({.backend = "mpi",
                                     .timeout = waits_long ? 20'000ms : 2'000ms,
                                     .progress_timeout = what == "silent" ? 3'000ms : 20'000ms});
    rank = group->rank();
    if (group->rank() == 1 && what == "abort") group->abort("out of luck");
    if (group->rank() == 1 && what == "silent") std::this_thread::sleep_for(5s);
    if (group->rank() == 1 && what == "busy") std::this_thread::sleep_for(4s);
    if (group->rank() == 1 && what == "stopped") stop_for_a_while();
    const bool leaves = what == "leaves" || what == "leaves_a_stopped_one";
    if (group->rank() == 1 && !leaves) std::this_thread::sleep_for(1s);  // mpirun ends the others with it
    if (group->rank() == 1 && leaves) {
      group.reset();
      std::printf("rank 1 has left\n");
      if (what == "leaves") std::this_thread::sleep_for(1s);  // mpirun ends the others with it
      return 1;
    }
    if (what == "leaves_a_stopped_one") {
      std::this_thread::sleep_for(200ms);  // until rank 1 waits for its shutdown message
      ::kill(::getpid(), SIGSTOP);
    }
    group->barrier({.label = "all"}).wait();
    destroy_process_group(group);
    if (what == "busy") std::printf("all came\n");
  } catch (const std::exception& error) {
    std::printf("rank %d: %s\n", rank, error.what());
    std::fflush(stdout);
    return 1;
  }
}
