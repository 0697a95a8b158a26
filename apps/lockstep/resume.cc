#include "resume.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <optional>
#include <type_traits>

namespace lockstep::app {
namespace {

using Value = std::optional<Recipe::Value>;

// The command-line option for an entry of the recipe.
std::string as_option(const std::string& name, const Value& value) {
  static const std::map<std::string, std::string> kOtherNames = {
      {"learning_rate", "lr"}, {"clip_norm", "clip"}, {"average_decay", "average"}};
  if (name == "gradients" && !value) return "--gradients f32";
  if (!value) return fmt::format("no {}", name == "cuda_algorithms" ? "LOCKSTEP_CUDA_ALGORITHMS" : name);
  const std::string* word = value->as<std::string>();
  const std::string text = word ? *word : value->json();
  if (name == "cuda_algorithms") return "LOCKSTEP_CUDA_ALGORITHMS=" + text;
  if (name == "shuffle") return *value == true ? "no --no-shuffle" : "--no-shuffle";
  if (name == "sync_bn") return *value == true ? "--sync-bn" : "no --sync-bn";
  if (name == "data") return fmt::format("training data {:.8}… (--data)", text);
  if (name == "init_from") return fmt::format("initial weights {:.8}… (--init-from)", text);
  if (name == "examples") return fmt::format("{} training images (--limit-train)", text);
  if (name == "scheduled_steps") return fmt::format("a schedule of {} steps (--epochs, --max-steps)", text);
  const auto other = kOtherNames.find(name);
  std::string option = other == kOtherNames.end() ? name : other->second;
  std::ranges::replace(option, '_', '-');
  return fmt::format("--{} {}", option, text);
}

}  // namespace

void take_from_checkpoint(TrainOptions& o) {
  const Recipe recipe = read_recipe(o.resume);
  // 0 if the recipe lacks the number. The comparison of recipes reports any other mismatch.
  auto saved = [&](const char* name) {
    const Recipe::Value* found = recipe.find(name);
    const std::uint64_t* number = found ? found->as<std::uint64_t>() : nullptr;
    return number && *number <= 65536 ? static_cast<int>(*number) : 0;
  };
  o.checkpoint_shards = saved("shards");
  if (o.shards == 0) o.shards = o.checkpoint_shards;
  if (o.threads_per_shard == 0) o.threads_per_shard = saved("threads_per_shard");
  const Recipe::Value* weights = recipe.find("init_from");
  if (const std::string* hash = weights ? weights->as<std::string>() : nullptr) o.start_weights = *hash;
  // The recipes of older versions have settings without an effect. Equal recipes let their checkpoints resume.
  const auto take = [&](const char* name, auto& setting) {
    const Recipe::Value* found = recipe.find(name);
    if (const auto* value = found ? found->as<std::decay_t<decltype(setting)>>() : nullptr) setting = *value;
  };
  if (o.optimizer != "sgd") take("momentum", o.momentum);
  if (!o.has_convolutions()) take("direct_conv", o.direct_conv);
  if (!o.has_batch_norm()) take("sync_bn", o.sync_bn);
}

ResumedRun resume(Trainer& trainer, const std::string& folder) {
  try {
    return trainer.resume(folder);
  } catch (const RecipeMismatch& error) {
    std::string saved, mine;
    for (const auto& d : error.differences) {
      // Then the kind of schedule differs as well and is reported.
      if (d.name.starts_with("schedule") && d.name != "schedule" && !(d.saved && d.mine)) continue;
      // The same holds for the dtype.
      if (d.name.starts_with("loss_scale") && !(d.saved && d.mine)) continue;
      const char* comma = saved.empty() ? "" : ", ";
      saved += comma + as_option(d.name, d.saved);
      mine += comma + as_option(d.name, d.mine);
    }
    fail("{}: the checkpoint was made with {}; this run has {}", error.file.string(), saved, mine);
  }
}

std::string not_compared(const ResumedRun& run) {
  if (run.unrecorded.empty()) return "";
  return fmt::format("; the checkpoint does not record {}: this run's setting is used",
                     fmt::join(run.unrecorded, ", "));
}

}  // namespace lockstep::app
