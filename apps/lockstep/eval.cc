#include <algorithm>
#include <iterator>

#include "apps/lockstep/commands.h"
#include "apps/lockstep/confusion_matrix.h"
#include "apps/lockstep/eval_run.h"
#include "apps/lockstep/initial_weights.h"
#include "apps/lockstep/options/data.h"
#include "apps/lockstep/options/metrics.h"
#include "apps/lockstep/options/train_options.h"
#include "apps/lockstep/output.h"
#include "apps/lockstep/ranks.h"
#include "lockstep/train/evaluate.h"

namespace lockstep::app {

Command add_eval(CLI::App& parent) {
  auto* app = parent.add_subcommand("eval", "Measure saved weights on the test data: accuracy and other metrics");
  auto options = std::make_shared<TrainOptions>();
  options->open_shards = OpenShards::enough;
  options->add_to(
      *app, {"--model", "--context", "--layers", "--heads", "--width", "--init-from", "--data", "--limit-test",
             "--metrics", "--batch-size", "--devices", "--num-devices", "--cores-per-device", "--threads-per-shard",
             "--shards", "--dtype", "--tf32", "--direct-conv"});
  app->get_option("--shards")
      ->description(
          "V: number of shards per batch; decides memory and speed only [as in train, or one per device if that is "
          "more]");
  app->get_option("--threads-per-shard")
      ->description(
          "T: CPU threads that compute one shard; decides memory and speed only [f32, f16: as many as the cores allow; "
          "bf16: 1]");
  app->get_option("--batch-size")->description("Examples per batch, over all devices");
  auto run = std::make_shared<EvalRunOptions>();
  app->add_option("--run", run->run,
                  "The folder --save of a run. Without --data, measures the part of the run's own data that it did not "
                  "train on. Prints precision and recall of each class, and the worst examples")
      ->type_name("DIR")
      ->group("Model")
      ->excludes("--init-from");
  app->add_option("--confusion", run->confusion, "With --run: draw the confusion matrix to this SVG file")
      ->type_name("FILE")
      ->needs("--run")
      ->group("Output");
  app->add_option("--worst", run->worst, "With --run: how many examples with the largest losses to list")
      ->check(CLI::Range(0, 1 << 20))
      ->capture_default_str()
      ->needs("--run")
      ->group("Output");
  app->add_flag("--skip-broken", run->skip_broken,
                "With --run and --data: leave out rows and pictures that cannot be read, and say how many")
      ->needs("--run")
      ->group("Data");
  add_max_pixels(*app, run->max_pixels)->needs("--run")->group("Data");
  return [options, app, run] {
    check_single_process("eval");
    if (!run->run.empty()) {
      for (const CLI::Option* option : app->get_options()) {
        const std::string name = option->get_name();
        constexpr std::string_view kOwn[] = {"--run",   "--data",   "--batch-size",  "--confusion",
                                             "--worst", "--config", "--skip-broken", "--max-pixels"};
        if (option->count() > 0 && std::ranges::find(kOwn, name) == std::end(kOwn)) {
          throw UsageError(fmt::format("{}: not with --run, which has the model of {}", name, run->run));
        }
      }
      run->data = options->data;
      run->batch_size = options->trainer.batch_size;
      return eval_run(*run);
    }
    if (options->init_from.empty()) throw UsageError("--init-from or --run is required (see lockstep eval --help)");
    options->choose_defaults(*app);
    if (options->own_data) {
      throw UsageError(
          fmt::format("--data {}: only --run knows its classes and normalization, expected --run DIR", options->data));
    }
    const std::string transforms = recipe_text(options->init_from, "transforms").value_or("");
    if (recipe_text(options->init_from, "schema") || transforms.find("Normalize") != std::string::npos) {
      throw UsageError(
          fmt::format("--init-from {}: learned examples with classes or a normalization of their own, expected --run, "
                      "which knows them",
                      options->init_from));
    }
    ToolJob job = make_job(*options);
    options->source = load_data(*options);
    const DataSource& data = *options->source;
    notice_limits(*options, data);
    notice_other_data(*options, data);
    auto net = make_initialized_model(*options, job, data.schema);
    DataLoader loader(data.validation, {.batch_size = options->trainer.batch_size});
    const EvaluateOptions how{.devices = job.devices(), .split = {.shards = job.shards}, .dtype = job.dtype};
    const std::vector<Metric> metrics = make_metrics(*options, data.schema.outputs);
    if (metrics.empty()) {
      const Accuracy a = evaluate(*net, loader, how);
      print_out("test acc: {:.4f} ({} of {})\n", a.value(), a.correct, a.total);
      return 0;
    }
    for (const MetricResult& m : evaluate(*net, loader, metrics, how)) {
      if (m.name == "accuracy") {
        print_out("test acc: {:.4f} ({:.0f} of {:.0f})\n", m.value, m.sum, m.count);
      } else if (m.table.empty()) {
        print_out("{}: {:.4f}\n", m.name, m.value);
      } else {
        print_out("{}", confusion_text(m.name, m.table, shown_names(class_names(data.schema))));
      }
    }
    return 0;
  };
}

}  // namespace lockstep::app
