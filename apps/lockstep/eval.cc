#include "commands.h"
#include "job_options.h"
#include "lockstep/train/evaluate.h"

namespace lockstep::app {

Command add_eval(CLI::App& parent) {
  auto* app = parent.add_subcommand("eval", "Print the test accuracy of a model");
  auto options = std::make_shared<JobOptions>();
  options->open_shards = OpenShards::enough;
  options->add_model(*app);
  options->add_devices(*app);
  options->add_data(*app);
  app->get_option("--init-from")->required();
  return [options] {
    Job job = make_job(*options);
    auto net = make_initialized_model(*options, job);
    DataLoader loader(head(load_data(*options, MnistPart::test), options->limit_test),
                      {.batch_size = options->batch_size});
    Accuracy a = evaluate(*net, loader, {.devices = job.devices, .shards = job.shards, .dtype = job.dtype});
    fmt::print("test acc: {:.4f} ({} of {})\n", a.value(), a.correct, a.total);
    return 0;
  };
}

}  // namespace lockstep::app
