#include "lockstep/task/run.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include "lockstep/autograd/functions.h"
#include "lockstep/autograd/no_grad.h"
#include "lockstep/checkpoint/checkpoint_directory.h"
#include "lockstep/optim/adam.h"
#include "lockstep/task/data_source.h"
#include "lockstep/train/trainer.h"
#include "tests/expect_error.h"
#include "tests/temporary_folder.h"

namespace lockstep {
namespace {

// The price is 20 x + 5; the kind says whether x is above 4.
std::string rows(const std::string& target) {
  std::string text = "x,y," + target + "\n";
  for (int i = 0; i < 60; ++i) {
    const int x = i * 7 % 10;
    text += fmt::format("{},{},{}\n", x, i % 4,
                        target == "price" ? fmt::format("{}.5", 20 * x + 5) : std::string(x > 4 ? "large" : "small"));
  }
  return text;
}

class RunFolder : public ::testing::Test {
 protected:
  DataSource train(const std::string& target, const TaskModel& model, DType dtype = DType::f32) {
    DataSource data = open_data(folder_.write("data.csv", rows(target)));
    net_ = make_task_model(data.schema, model);
    net_->initialize(task_initializer(data.schema, model), {.seed = 1});
    Adam adam(net_->parameters(), {.lr = 0.01});
    Trainer trainer(*net_, adam, data.train, data.validation,
                    {.split = {.shards = 1},
                     .batch_size = 16,
                     .epochs = 1,
                     .dtype = dtype,
                     .loss = task_loss(data.schema),
                     .metrics = task_metrics(data.schema),
                     .save_folder = folder_ / "run"});
    trainer.train();
    write_run(folder_ / "run", {data.schema, model});
    return data;
  }
  static Tensor inputs(const std::shared_ptr<const Dataset>& data) {
    DataLoader loader(data, {.batch_size = 8});
    return (*loader.begin())[0];
  }

  TemporaryFolder folder_;
  std::unique_ptr<Module> net_;
};

TEST_F(RunFolder, GivesTheModelBack) {
  const DataSource data = train("kind", {.name = "mlp", .hidden = {8}});
  const lockstep::Run run = load_run(folder_ / "run");
  EXPECT_EQ(run.weights().parent_path(), folder_ / "run");
  EXPECT_EQ(run.schema(), data.schema);
  EXPECT_EQ(run.description().model.hidden, std::vector<std::int64_t>{8});
  const Tensor x = inputs(data.validation);
  const NoGradGuard no_history;
  net_->eval();
  EXPECT_EQ(run(x).to_vector<float>(), softmax((*net_)(x), -1).to_vector<float>());
  EXPECT_ERROR(run(zeros({2, 5})), "expected [N, ..] with [2] behind N");
}

TEST_F(RunFolder, HasAllThatDescribesTheRun) {
  const DataSource data = train("kind", {.name = "mlp", .hidden = {8}});
  const RunDescription run{.schema = data.schema,
                           .model = {.name = "mlp", .hidden = {8}},
                           .validation_digest = "00ff",
                           .recipe = read_recipe(folder_ / "run"),
                           .options = R"({"data":"bytes:ff","drop-last":true,"hidden":["8"],"lr":1.0})"};
  write_run(folder_ / "run", run);
  for (const RunDescription& found : {read_run(folder_ / "run"), load_run(folder_ / "run").description()}) {
    EXPECT_EQ(found.schema, run.schema);
    EXPECT_EQ(found.model.name, "mlp");
    EXPECT_EQ(found.validation_digest, run.validation_digest);
    EXPECT_EQ(recipe_hash(found.recipe), recipe_hash(run.recipe));
    EXPECT_EQ(found.options, run.options);
  }
  // A program need not know its options and recipe: the checkpoint has the latter.
  write_run(folder_ / "run", {data.schema, {.name = "mlp", .hidden = {8}}});
  EXPECT_EQ(read_run(folder_ / "run").recipe, Recipe());
  EXPECT_TRUE(load_run(folder_ / "run").description().recipe.contains("learning_rate"));
}

// A training that goes on may delete the checkpoint after load_run() has read it.
TEST_F(RunFolder, IsReadOnce) {
  const DataSource data = train("kind", {.name = "mlp", .hidden = {8}});
  const RunDescription description = read_run(folder_ / "run");
  CheckpointContents checkpoint = read_checkpoint(folder_ / "run");
  const std::filesystem::path path = checkpoint.path;
  std::filesystem::remove_all(folder_ / "run");
  const lockstep::Run run(description, std::move(checkpoint));
  EXPECT_EQ(run.weights(), path);
  const NoGradGuard no_history;
  net_->eval();
  const Tensor x = inputs(data.validation);
  EXPECT_EQ(run.outputs_of(x).to_vector<float>(), (*net_)(x).to_vector<float>());
}

// Its classes would be those of other data.
TEST_F(RunFolder, DescribesNoOtherRunThanThatOfTheWeights) {
  const TaskModel model{.name = "mlp", .hidden = {8}};
  const DataSource data = train("kind", model);
  Recipe other = read_recipe(folder_ / "run");
  other.set("learning_rate", 0.5);
  write_run(folder_ / "run", {.schema = data.schema, .model = model, .recipe = other});
  EXPECT_ERROR(load_run(folder_ / "run"), "run.json: describes another run than that of the weights");
  EXPECT_ERROR(load_run(folder_ / "run"), "learning_rate 0.01; this run has learning_rate 0.5");
}

TEST_F(RunFolder, OfAnOlderVersionIsRead) {
  const DataSource data = train("kind", {.name = "mlp", .hidden = {8}});
  folder_.write("run/run.json",
                R"({"version": 1, "model": "mlp", "hidden": [8], "validation_digest": "00ff", "schema": )" +
                    data.schema.json() + "}");
  const RunDescription run = load_run(folder_ / "run").description();
  EXPECT_EQ(run.schema, data.schema);
  EXPECT_EQ(run.model.hidden, std::vector<std::int64_t>{8});
  EXPECT_EQ(run.validation_digest, "00ff");
  EXPECT_EQ(run.recipe, read_recipe(folder_ / "run"));
  EXPECT_EQ(run.options, "");
  folder_.write("run/run.json", R"({"version": 3})");
  EXPECT_ERROR(read_run(folder_ / "run"), "run.json: version 3, expected 1 or 2");
}

TEST_F(RunFolder, PredictsInTheUnitsOfTheData) {
  const DataSource data = train("price", {});
  const lockstep::Run run = load_run(folder_ / "run");
  const Tensor x = inputs(data.validation);
  const NoGradGuard no_history;
  net_->eval();
  const std::vector<float> normalized = (*net_)(x).to_vector<float>();
  const std::vector<double> values = run(x).to_vector<double>();
  ASSERT_EQ(values.size(), normalized.size());
  for (std::size_t i = 0; i < values.size(); ++i) {
    // Exact in f64, also where the mean is far from 0.
    EXPECT_EQ(values[i],
              static_cast<double>(normalized[i]) * data.schema.target_stddev[0] + data.schema.target_mean[0]);
  }
}

// f32 gave other values than the tests of the training.
TEST_F(RunFolder, ComputesInTheTypeOfTheTraining) {
  const DataSource data = train("kind", {.name = "mlp", .hidden = {8}}, DType::bf16);
  const Tensor x = inputs(data.validation);
  const NoGradGuard no_history;
  net_->eval();
  const std::vector<float> half = net_->forward(x.to(DType::bf16)).to(DType::f32).to_vector<float>();
  const std::vector<float> full = net_->forward(x).to_vector<float>();
  ASSERT_NE(half, full);
  const lockstep::Run run = load_run(folder_ / "run");
  EXPECT_EQ(run.description().model.dtype, DType::bf16);
  EXPECT_EQ(run.outputs_of(x).to_vector<float>(), half);
  EXPECT_EQ(load_run(folder_ / "run", DType::f32).outputs_of(x).to_vector<float>(), full);
}

// Making them took minutes before the weights were looked at.
TEST_F(RunFolder, DescribesNoMoreLayersThanTheWeightsHave) {
  const DataSource data = train("kind", {.name = "mlp", .hidden = {8}});
  std::vector<std::int64_t> hidden(100'000, 1);
  write_run(folder_ / "run", {data.schema, {.name = "mlp", .hidden = hidden}});
  EXPECT_ERROR(load_run(folder_ / "run"),
               "run.json: a model of 100000 layers and categories, the weights have at most ");
  const DataSource text = open_data(folder_.write("a.txt", std::string(2000, 'a') + std::string(2000, 'b')));
  write_run(folder_ / "run", {text.schema, {.name = "gpt", .layers = 65'536, .width = 1, .heads = 1}});
  EXPECT_ERROR(load_run(folder_ / "run"),
               "run.json: a model of 65536 layers and categories, the weights have at most ");
  DataSchema wide = data.schema;
  wide.table->columns.assign(300'000, {.name = "x", .kind = TableColumn::Kind::category, .categories = {"a"}});
  wide.input = {300'000};
  write_run(folder_ / "run", {wide, {.name = "mlp", .hidden = {8}}});
  EXPECT_ERROR(load_run(folder_ / "run"),
               "run.json: a model of 300001 layers and categories, the weights have at most ");
  write_run(folder_ / "new", {data.schema, {.name = "mlp", .hidden = hidden}});
  EXPECT_ERROR(load_run(folder_ / "new"), "new: there is no valid checkpoint");
}

TEST_F(RunFolder, ErrorsNameWhatIsMissing) {
  EXPECT_ERROR(load_run(folder_ / "none"), "there is no such folder");
  EXPECT_ERROR(load_run(folder_.path()), "has no run.json");
  folder_.write("run.json", "{}");
  EXPECT_ERROR(load_run(folder_.path()), "run.json: ");
  const DataSchema schema = open_data(folder_.write("data.csv", rows("kind"))).schema;
  EXPECT_ERROR(make_task_model(schema, {.name = "lenet"}), "model lenet: examples are [2], expected pictures");
  EXPECT_ERROR(make_task_model(schema, {.name = "lenet", .hidden = {3}}), "hidden layers are only for mlp");
  EXPECT_ERROR(make_task_model({.input = {3, 32, 32}, .outputs = 2}, {.name = "torchvision:vgg"}),
               "unknown model torchvision:vgg");
}

}  // namespace
}  // namespace lockstep
