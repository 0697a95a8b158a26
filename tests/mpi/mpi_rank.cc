// A rank that fails, or one that others wait for in vain: `mpi_rank abort|silent`. Says what each of them is told.
#include <cstdio>
#include <string>
#include <thread>

#include "lockstep/comm/process_group.h"

int main(int argc, char** argv) {
  using namespace lockstep;
  using namespace std::chrono_literals;
  const std::string what = argc > 1 ? argv[1] : "";
  try {
    auto group = init_process_group({.backend = "mpi", .timeout = what == "silent" ? 500ms : 20'000ms});
    if (group->rank() == 1 && what == "abort") group->abort("out of luck");
    if (group->rank() == 1 && what == "silent") std::this_thread::sleep_for(2s);
    if (group->rank() == 1) std::this_thread::sleep_for(1s);  // mpirun ends the others with it
    group->barrier({.label = "all"}).wait();
    destroy_process_group(group);
  } catch (const std::exception& error) {
    std::printf("%s\n", error.what());
    std::fflush(stdout);
    return 1;
  }
}
