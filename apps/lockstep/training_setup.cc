#include "apps/lockstep/training_setup.h"

#include <algorithm>
#include <utility>

#include "apps/lockstep/fine_tuning.h"
#include "apps/lockstep/initial_weights.h"
#include "apps/lockstep/options/data.h"
#include "apps/lockstep/options/metrics.h"
#include "lockstep/checkpoint/weights.h"
#include "lockstep/nn/batch_norm.h"
#include "lockstep/nn/summary.h"

namespace lockstep::app {

Tensor example_input(const Dataset& data, std::uint64_t seed) {
  const std::int64_t index = 0;
  const RandomKey key = random_key(seed, {});
  return data.batch({&index, 1}, {&key, 1}).at(0);
}

TrainingSetup set_up_training(TrainOptions& o, const ToolJob& job) {
  o.source = load_data(o);
  const DataSource& data = *o.source;
  TrainingSetup setup;
  setup.net = make_initialized_model(o, job, data.schema);
  Module& net = *setup.net;
  // Weights that are missing from the file may still have unknown shapes.
  if (!o.init_from.empty() && !std::ranges::all_of(net.parameters(), &Parameter::shape_known))
    settle_shapes(net, example_input(*data.train, o.seed), job.devices()[0]);
  if (!o.init_from.empty()) o.start_weights = weights_sha256(net);
  if (o.sync_bn) convert_sync_batchnorm(net);
  if (!o.freeze.empty()) freeze_parts(net, o.freeze);
  setup.optimizer = o.make_optimizer(o.head_lr ? groups_with_head(net, *o.head_lr) : ParameterGroups(net.parameters()));
  TrainerOptions& options = setup.options = o.trainer_options(job);
  options.recipe.set("data", data.digest);
  options.metrics = make_metrics(o, data.schema.outputs);
  o.mix_examples(options, data.schema.outputs);
  if (o.class_weights == "balanced") o.balance_classes(options, data.train_counts);
  return setup;
}

}  // namespace lockstep::app
