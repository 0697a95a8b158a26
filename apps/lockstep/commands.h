// The commands of the tool. Each adds its options to its own subcommand; running it returns the exit status.
#pragma once

#include "apps/lockstep/options/command_line.h"

namespace lockstep::app {

Command add_train(CLI::App& parent);
Command add_eval(CLI::App& parent);
Command add_predict(CLI::App& parent);
Command add_export(CLI::App& parent);
Command add_sweep(CLI::App& parent);
Command add_verify(CLI::App& parent);
Command add_audit(CLI::App& parent);
Command add_devices(CLI::App& parent);
Command add_launch(CLI::App& parent);
Command add_bisect(CLI::App& parent);
Command add_bench(CLI::App& parent);
Command add_graph(CLI::App& parent);

}  // namespace lockstep::app
