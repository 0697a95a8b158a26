#include "lockstep/launch/launch_environment.h"
#include "tests/fuzz/reader.h"

namespace lockstep::fuzz {

// A list of hosts, a NUL, and a list of tasks.
Reader slurm() {
  return {.read =
              [](const std::string& bytes) {
                const std::size_t end = bytes.find('\0');
                first_slurm_host(bytes.substr(0, end));
                if (end != bytes.npos) slurm_tasks_of_node(bytes.substr(end + 1), 3);
              },
          .seeds = {"gpu[07-08,12],cpu1", std::string("rack[1-2]node[3-4]") + '\0' + "4(x2),1,12(x30)"},
          .words = {"[", "]", ",", "-", "(x", ")", "0", "1", "-1", "1(x2)", "99999999999999999999", "node",
                    std::string_view("\0", 1)}};
}

}  // namespace lockstep::fuzz
