// The key by which `sweep` knows a run again.
#include <gtest/gtest.h>

#include <string>

#include "apps/lockstep/options/run_config.h"

namespace lockstep::app {
namespace {

std::string key(const TrainOptions& options, const Recipe& recipe) {
  RunDescription run;
  run.recipe = recipe;
  return run_key(options, run);
}

Recipe plain_recipe() { return {{"data", "d"}}; }

TEST(RunKey, AnOptionThatTheRecipeLacksCounts) {
  TrainOptions options;
  const std::string before = key(options, plain_recipe());
  options.weight_decay = 0.5;
  EXPECT_NE(key(options, plain_recipe()), before);
}

TEST(RunKey, AnOptionThatTheRecipeHasCountsThere) {
  const Recipe recipe{{"data", "d"}, {"weight_decay", 0.5}};
  TrainOptions options;
  const std::string before = key(options, recipe);
  EXPECT_NE(before, key(options, plain_recipe()));
  options.weight_decay = 0.5;
  EXPECT_EQ(key(options, recipe), before);
}

TEST(RunKey, WhatIsMeasuredAndTheNumberOfStepsCount) {
  const std::string before = key({}, plain_recipe());
  TrainOptions longer, measured, fewer;
  longer.trainer.epochs += 1;
  measured.metrics = {"perplexity"};
  fewer.reading.limit_validation = 5;
  for (const TrainOptions& options : {longer, measured, fewer}) EXPECT_NE(key(options, plain_recipe()), before);
}

TEST(RunKey, DevicesOutputsAndPlacesDoNotCount) {
  TrainOptions options;
  const std::string before = key(options, plain_recipe());
  options.num_devices = 2;
  options.trainer.workers = 3;
  options.save = "folder";
  options.log = "log.jsonl";
  options.data = "elsewhere";
  options.init_from = "w.safetensors";
  EXPECT_EQ(key(options, plain_recipe()), before);
}

}  // namespace
}  // namespace lockstep::app
