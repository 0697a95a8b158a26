// lockstep COMMAND ...: run_command() describes the exit status.

#include "apps/lockstep/commands.h"
#include "apps/lockstep/options/command_line.h"
#include "lockstep/version.h"

int main(int argc, char** argv) {
  using namespace lockstep::app;
  return run_command(argc, argv, [](CLI::App& app) -> Commands {
    app.description("Trains neural networks on many devices as if they were one.");
    app.set_version_flag("--version", "lockstep " LOCKSTEP_VERSION);
    return {{"train", add_train(app)},   {"eval", add_eval(app)},     {"predict", add_predict(app)},
            {"launch", add_launch(app)}, {"sweep", add_sweep(app)},   {"verify", add_verify(app)},
            {"audit", add_audit(app)},   {"bisect", add_bisect(app)}, {"devices", add_devices(app)},
            {"graph", add_graph(app)},   {"export", add_export(app)}, {"bench", add_bench(app)}};
  });
}
