// lockstep bench: runs the benchmarks, which are a program of their own, lockstep-bench, next to this one.
#include <unistd.h>

#include <cerrno>
#include <system_error>

#include "apps/lockstep/commands.h"
#include "lockstep/base/error.h"
#include "lockstep/launch/child_process.h"

namespace lockstep::app {

Command add_bench(CLI::App& parent) {
  auto* app = parent.add_subcommand("bench", "Measure the engine, kernels, copies, and training steps");
  app->set_help_flag();  // the program gets --help, too
  app->prefix_command();
  return [app]() -> int {
    const std::string program = own_program() + "-bench";
    std::vector<std::string> words = app->remaining();
    words.insert(words.begin(), program);
    std::vector<char*> argv;
    for (std::string& word : words) argv.push_back(word.data());
    argv.push_back(nullptr);
    ::execv(program.c_str(), argv.data());
    fail("bench: cannot run {}: {}", program, std::generic_category().message(errno));
  };
}

}  // namespace lockstep::app
