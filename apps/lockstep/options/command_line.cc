#include "apps/lockstep/options/command_line.h"

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <exception>
#include <memory>
#include <string>
#include <system_error>
#include <vector>

#include "apps/lockstep/options/config_file.h"
#include "apps/lockstep/options/help.h"
#include "apps/lockstep/options/option_row.h"
#include "apps/lockstep/options/unexpected_arguments.h"
#include "apps/lockstep/output.h"
#include "apps/lockstep/stop_signals.h"

namespace lockstep::app {
namespace {

// Prints each error on one line, whatever it quotes.
void print_error(std::string text) {
  for (char& c : text) c = c == '\n' ? ' ' : c;
  print_text(stderr, "lockstep: " + text + "\n");
}

int run(int argc, char** argv, const std::function<Commands(CLI::App& app)>& add) {
  CLI::App app;
  app.name("lockstep");
  app.formatter(std::make_shared<HelpFormatter>(help_width()));  // commands inherit the formatter
  app.require_subcommand(0,
                         1);  // a missing command is reported below, after wrong arguments
  const Commands commands = add(app);
  group_options(app);
  add_config_option(app);
  Arguments arguments;
  try {
    arguments = with_config(app, {argv + 1, argv + argc});
    app.parse(
        std::vector<std::string>{arguments.words.rbegin(), arguments.words.rend()});  // CLI11 wants the last first
  } catch (const Error& error) {
    print_error(error.what());
    return 2;
  } catch (const CLI::ExtrasError&) {
    print_error(unexpected_arguments(app));
    return 2;
  } catch (const CLI::ParseError& error) {
    if (error.get_exit_code() == 0) return app.exit(error);  // --help, --version
    std::string command;
    for (auto given = app.get_subcommands(); !given.empty(); given = given.front()->get_subcommands()) {
      command += given.front()->get_name() + " ";
    }
    const std::string text = error.what();
    const bool from_file =
        std::ranges::any_of(arguments.from_file, [&](const std::string& name) { return text.starts_with(name + ":"); });
    print_error(fmt::format("{}{} (see lockstep {}--help)", text,
                            from_file ? fmt::format(", in {}", arguments.file) : "", command));
    return 2;
  }
  if (app.get_subcommands().empty()) {
    print_error("expected a command (see lockstep --help)");
    return 2;
  }
  try {
    return commands.at(app.get_subcommands().front()->get_name())();
  } catch (const UsageError& error) {
    print_error(error.what());
    return 2;
  } catch (const std::exception& error) {
    const std::string text = message_of(error);
    const bool trains = commands.contains("train") && app.got_subcommand("train");
    const bool no_memory = trains && text.find(": out of memory: ") != std::string::npos;
    print_error(no_memory ? text + "; a smaller --batch-size, or a larger --accumulate, needs less" : text);
    return 1;
  }
}

}  // namespace

int run_command(int argc, char** argv, const std::function<Commands(CLI::App& app)>& add) {
  keep_ignored_signals();
  std::signal(SIGXFSZ, SIG_IGN);  // then a write beyond `ulimit -f` fails with a message
  const int status = run(argc, argv, add);
  // Output that could not be written makes the command fail.
  if (status == 0 && (std::fflush(stdout) != 0 || std::ferror(stdout))) {
    print_error(fmt::format("standard output: {}", std::generic_category().message(errno)));
    return 1;
  }
  return status;
}

}  // namespace lockstep::app
