// The commands of the tool. Each adds its options to its own subcommand; running it returns the exit status.
#pragma once

#include <CLI/CLI.hpp>

#include <functional>

namespace lockstep::app {

using Command = std::function<int()>;

Command add_train(CLI::App& parent);
Command add_eval(CLI::App& parent);
Command add_verify(CLI::App& parent);
Command add_devices(CLI::App& parent);
Command add_launch(CLI::App& parent);
Command add_bench(CLI::App& parent);
Command add_graph(CLI::App& parent);

}  // namespace lockstep::app
