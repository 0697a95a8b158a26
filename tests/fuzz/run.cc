#include "lockstep/task/run.h"

#include "lockstep/checkpoint/training_checkpoint.h"
#include "lockstep/optim/sgd.h"
#include "tests/fuzz/reader.h"

namespace lockstep::fuzz {

// run.json beside the weights of a small model.
Reader run() {
  DataSchema schema{
      .classes = {"no", "yes"},
      .input = {1},
      .outputs = 2,
      .table = TableSchema{
          .columns = {{.name = "x"}}, .target = "y", .has_header = true, .table_columns = 2, .classes = {"no", "yes"}}};
  const TaskModel model{.name = "mlp", .hidden = {4}};
  const auto net = make_task_model(schema, model);
  net->initialize(task_initializer(schema, model), {.seed = 1});
  Sgd sgd(net->parameters(), {.lr = 0.1});
  const std::string folder = file_in_scratch("run");
  const Recipe recipe{{"seed", 0}, {"learning_rate", 0.1}, {"data", "00ff"}, {"drop_last", true}};
  save_checkpoint(folder, *net, sgd, {.step = 1}, recipe);
  write_run(folder, {.schema = schema,
                     .model = model,
                     .validation_digest = "00ff",
                     .recipe = recipe,
                     .options = R"({"lr":0.1,"hidden":["4"],"data":"bytes:ff00","drop-last":true})"});
  return {.read =
              [folder](const std::string& bytes) {
                write_in_scratch("run/run.json", bytes);
                load_run(folder);
              },
          .seeds = {read_from_scratch("run/run.json")},
          .words = json_words({"version", "model", "name", "hidden", "layers", "width", "heads", "schema", "options",
                               "recipe", "mlp", "gpt", "lstm", "resnet18", "torchvision:resnet50", "bytes:", "text",
                               "input", "outputs"}),
          .memory_per_byte = 60};
}

}  // namespace lockstep::fuzz
