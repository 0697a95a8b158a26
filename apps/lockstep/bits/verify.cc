// lockstep verify: runs the same training on several layouts of devices and processes, and compares all bits per step.
#include <stdlib.h>

#include <fmt/ranges.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <optional>

#include "apps/lockstep/bits/golden_hashes.h"
#include "apps/lockstep/bits/training_layout.h"
#include "apps/lockstep/bits/weights_log.h"
#include "apps/lockstep/commands.h"
#include "apps/lockstep/options/data.h"
#include "apps/lockstep/options/option_row.h"
#include "apps/lockstep/options/train_options.h"
#include "apps/lockstep/output.h"
#include "apps/lockstep/ranks.h"
#include "apps/lockstep/temporary_folder.h"
#include "lockstep/base/count_of.h"
#include "lockstep/base/environment.h"
#include "lockstep/checkpoint/json_input.h"
#include "lockstep/launch/child_process.h"
#include "lockstep/launch/launcher.h"
#include "lockstep/parallel/balance.h"

namespace lockstep::app {
namespace {

// Returns whether `words` have the option as `--name VALUE` or as `--name=VALUE`.
bool has_option(const std::vector<std::string>& words, std::string_view name) {
  return std::ranges::any_of(words, [&](std::string_view word) { return word.substr(0, word.find('=')) == name; });
}

struct VerifyOptions {
  std::vector<std::string> layouts{"1", "2", "2x1"};
  int shards = 0;
  int steps = 0;  // 0 means 4, or 42 with shares by speed, so that shares can change twice
  std::string balance = "equal";
  int threads_per_shard = 1;
  int batch_size = 64;
  std::string inject_flip;
};

class Verification {
 public:
  Verification(const VerifyOptions& options, std::vector<std::string> train_options)
      : options_(options), train_options_(std::move(train_options)) {
    for (const std::string& text : options_.layouts) layouts_.push_back(parse_layout("--layouts", text));
    balance_ = parse_balance(options_.balance, 0);
    if (options_.steps == 0) options_.steps = balance_.automatic ? 42 : 4;
    if (layouts_.size() < 2) throw UsageError("--layouts: one layout, expected at least two to compare");
    for (const OptionRow& row : option_rows()) {
      const std::string& refused = row.extras.refused;
      if (refused.empty() || !has_option(train_options_, row.name)) continue;
      throw UsageError(fmt::format("verify {}", fmt::format(fmt::runtime(refused), row.name)));
    }
    const std::optional<TrainOptions> parsed = parse_train_options();
    // In the recipes of the golden hashes, a shard has twice as many examples as by default in `train`.
    TrainOptions half = parsed.value_or(TrainOptions{});
    half.trainer.batch_size /= 2;
    shards_ = options_.shards > 0 ? options_.shards : half.shards_of_batch();
    for (const TrainingLayout& layout : layouts_) {
      const int devices = layout.processes * layout.devices;
      if (options_.shards == 0) shards_ = std::max(shards_, devices);
      if (devices > shards_) {
        throw UsageError(fmt::format("--shards {} for {} devices of layout {}: expected at least one for each", shards_,
                                     devices, layout.text));
      }
    }
    check_balance();
    if (parsed) check_flip(*parsed);
    folder_ = make_temporary_folder();  // last: the destructor does not run after an error above
  }
  ~Verification() { std::filesystem::remove_all(folder_); }

  int run() {
    for (std::size_t i = 0; i < layouts_.size(); ++i) {
      // The last layout gets the flipped bit.
      records_.push_back(train(i, i + 1 == layouts_.size() ? options_.inject_flip : ""));
      print_out("{:<8}", layouts_[i].text);
      for (const WeightsRecord& r : records_.back()) print_out("  {}", r.weights_sha256.substr(0, 12));
      print_out("\n");
      std::fflush(stdout);
    }
    for (std::size_t i = 1; i < records_.size(); ++i) {
      if (std::string difference = first_difference(records_[0], records_[i]); !difference.empty()) {
        fail("verify: layout {} differs from layout {}: {}", layouts_[i].text, layouts_[0].text, difference);
      }
    }
    print_out("equal: {} layouts, {} steps, {} shards\n", layouts_.size(), options_.steps, shards_);
    compare_with_golden();
    return 0;
  }

 private:
  static std::filesystem::path make_temporary_folder() {
    std::string name = (temporary_folder() / "lockstep-verify-XXXXXX").string();
    check(mkdtemp(name.data()) != nullptr, "cannot make the folder {}", name);
    return name;
  }

  // A list of weights applies to layouts with that many devices; other layouts have equal shares.
  bool balances(const TrainingLayout& layout) const {
    return balance_.weights.empty() || layout.processes * layout.devices == std::ssize(balance_.weights);
  }
  void check_balance() const {
    if (std::ranges::any_of(layouts_, [&](const TrainingLayout& layout) { return balances(layout); })) return;
    throw UsageError(fmt::format("--balance {}: {}, expected a layout with as many devices among {}", options_.balance,
                                 count_of(std::ssize(balance_.weights), "weight"), fmt::join(options_.layouts, ",")));
  }

  // Returns nothing if an option of `train` has an error, which the first layout reports.
  std::optional<TrainOptions> parse_train_options() const {
    TrainOptions train;
    CLI::App app;
    train.add_to(app);
    app.allow_extras();
    try {
      app.parse(std::vector<std::string>(train_options_.rbegin(), train_options_.rend()));
    } catch (const CLI::ParseError&) {
      return std::nullopt;
    }
    train.choose_defaults(app);
    train.trainer.batch_size = options_.batch_size;
    train.inject_flip = options_.inject_flip;
    return train;
  }

  // Checks that --inject-flip names an existing step and parameter: otherwise nothing would be flipped.
  void check_flip(const TrainOptions& train) const {
    const auto [step, parameter] = train.flip();
    if (step == 0) return;
    if (step > options_.steps) {
      throw UsageError(fmt::format("--inject-flip {}: step {} is after the last step, {} (see --steps)",
                                   options_.inject_flip, step, options_.steps));
    }
    try {
      find_parameter(*make_task_model(stand_in_schema(train), task_model(train)), parameter);
    } catch (const Error& error) {
      throw UsageError(error.what());
    }
  }

  std::vector<WeightsRecord> train(std::size_t index, const std::string& flip) {
    const TrainingLayout& layout = layouts_[index];
    std::filesystem::path log = folder_ / fmt::format("{}.jsonl", index);
    auto add = [](std::vector<std::string>& command, const char* name, auto value) {
      command.insert(command.end(), {name, fmt::format("{}", value)});
    };
    std::vector<std::string> command{own_program(), "train"};
    add(command, "--num-devices", layout.devices);
    add(command, "--shards", shards_);
    add(command, "--threads-per-shard", options_.threads_per_shard);
    add(command, "--batch-size", options_.batch_size);
    add(command, "--max-steps", options_.steps);
    add(command, "--epochs", options_.steps);
    add(command, "--weights-log", log.string());
    const std::filesystem::path events = folder_ / fmt::format("{}.log", index);
    add(command, "--log", events.string());
    // An epoch of two and a half batches: the last batch is uneven, and steps continue into the next epoch.
    if (!has_option(train_options_, "--limit-train")) add(command, "--limit-train", options_.batch_size * 5 / 2 + 1);
    if (!has_option(train_options_, "--limit-test")) add(command, "--limit-test", 1);
    if (balances(layout)) add(command, "--balance", options_.balance);
    if (!flip.empty()) add(command, "--inject-flip", flip);
    command.insert(command.end(), train_options_.begin(), train_options_.end());
    std::string errors;
    LaunchResult result = launch(
        {.command = command, .nproc_per_node = layout.processes, .output = [&](bool is_error, std::string_view line) {
           if (is_error)
             errors += (errors.empty() ? "" : "; ") + std::string(line.substr(0, line.find_last_not_of("\n") + 1));
         }});
    if (result.status == 2) throw UsageError(fmt::format("verify: layout {}: {}", layout.text, errors));
    check(result.status == 0, "verify: layout {} failed: {}", layout.text, errors.empty() ? result.message : errors);
    std::string start;
    std::getline(std::ifstream(events), start);
    recipe_ = parse_json<nlohmann::json>(start).value("recipe", "");
    std::vector<WeightsRecord> records = read_weights_log(log);
    check(records.size() == static_cast<std::size_t>(options_.steps), "verify: layout {} has {} steps, expected {}",
          layout.text, records.size(), options_.steps);
    return records;
  }

  // The hashes hold for other processors, compilers, and numbers of threads, too.
  void compare_with_golden() const {
    const auto golden = golden_hash(recipe_, options_.steps);
    if (!golden) {
      print_out("golden: no hash is known for this recipe after {}\n", count_of(options_.steps, "step"));
      return;
    }
    const std::string& mine = records_[0].back().weights_sha256;
    check(mine == *golden,
          "verify: recipe {:.8} ends with weights {:.12} on this machine, expected {:.12} as on other machines: a "
          "kernel is wrong here, or this build changed the arithmetic",
          recipe_, mine, *golden);
    print_out("golden: {:.12} is the hash on every machine\n", mine);
  }

  static std::string first_difference(const std::vector<WeightsRecord>& a, const std::vector<WeightsRecord>& b) {
    for (std::size_t step = 0; step < a.size(); ++step) {
      for (const auto& [name, hash] : a[step].parameters) {
        auto other = b[step].parameters.find(name);
        if (other == b[step].parameters.end()) return fmt::format("step {}: {} is missing", a[step].step, name);
        if (other->second != hash) return fmt::format("step {}, parameter {}", a[step].step, name);
      }
    }
    return "";
  }

  VerifyOptions options_;
  std::vector<std::string> train_options_;
  std::filesystem::path folder_;
  std::vector<TrainingLayout> layouts_;
  Balance balance_;
  int shards_ = 0;
  std::string recipe_;  // hash of the recipe
  std::vector<std::vector<WeightsRecord>> records_;
};

}  // namespace

Command add_verify(CLI::App& parent) {
  auto* app =
      parent.add_subcommand("verify", "Train on several layouts of devices and processes, and compare the bits");
  auto o = std::make_shared<VerifyOptions>();
  app->add_option("--layouts", o->layouts,
                  "D: D devices in one process; PxD: P processes of D devices; comma-separated")
      ->delimiter(',')
      ->capture_default_str()
      ->group("Bits");
  app->add_option(
         "--shards", o->shards,
         "V: number of shards per batch [the largest power of two from 1 to 8 that leaves 32 images or 4 texts per "
         "shard, but at least one per device of the largest layout]")
      ->check(CLI::Range(1, 65536));
  app->add_option("--steps", o->steps, "Steps to compare [4; with --balance auto: 42]")
      ->check(CLI::Range(1, 1000000))
      ->group("Bits");
  app->add_option("--threads-per-shard", o->threads_per_shard, "T: CPU threads that compute one shard")
      ->check(CLI::Range(1, 1024))
      ->capture_default_str();
  app->add_option("--batch-size", o->batch_size, "Examples per batch, over all devices and ranks")
      ->check(CLI::Range(1, 1 << 24))
      ->capture_default_str();
  app->add_option("--balance", o->balance,
                  "As in train. Weights apply to layouts with that many devices; other layouts use equal shares")
      ->capture_default_str();
  app->add_option("--inject-flip", o->inject_flip,
                  "STEP:PARAMETER, such as 2:fc.weight: flip one bit in the last layout after that step, to see that "
                  "it is detected")
      ->group("Bits");
  app->allow_extras();
  std::string footer = "Other options are those of lockstep train, except for";
  for (const OptionRow& row : option_rows()) {
    if (!row.extras.refused.empty()) footer += " " + row.name;
  }
  app->footer(footer);
  return [app, o] {
    check_single_process("verify");
    return Verification(*o, app->remaining()).run();
  };
}

}  // namespace lockstep::app
