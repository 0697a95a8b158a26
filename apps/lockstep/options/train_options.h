// The options of `lockstep train`, and the objects made from them.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "apps/lockstep/options/common_options.h"

namespace lockstep::app {

struct TrainOptions : CommonOptions {
  double lr = 0.1;
  double momentum = 0;
  double weight_decay = 0;
  std::string optimizer = "sgd";
  std::string schedule = "constant";
  std::optional<double> loss_scale;
  std::string balance = "equal";
  bool sync_bn = false;
  bool summary = false;
  bool dry_run = false;
  bool report_origin = false;
  std::int64_t find_lr = 0;  // number of steps of the learning-rate finder; 0: train
  std::string export_file, save, resume, log, plot, trace, report, metrics_file, receipt;
  std::optional<double> timeout_seconds;
  std::string weights_log, inject_flip;
  std::vector<std::string> freeze;
  std::optional<double> head_lr;
  std::string class_weights = "none";
  double mixup = 0, cutmix = 0;
  std::vector<std::string> given;  // names of options that the user gave, here or in --config
  // SHA-256 of the initial weights from --init-from, of this run or of the run that wrote the checkpoint. Part of the
  // recipe.
  std::string start_weights;

  // Adds all options, or those with these names.
  void add_to(CLI::App& app, const std::vector<std::string_view>& names = {});
  std::unique_ptr<Optimizer> make_optimizer(const ParameterGroups& parameters) const;
  TrainerOptions trainer_options(const ToolJob& job) const;
  // Sets what --class-weights balanced decides: the loss, and the weight of a micro-batch.
  void balance_classes(TrainerOptions& options, const std::vector<std::int64_t>& counts) const;
  // Sets what --mixup and --cutmix do to batches.
  void mix_examples(TrainerOptions& options, std::int64_t classes) const;
  // Call it after the parse: sets what the user left open and the model decides. Throws UsageError for options that do
  // not fit the model. Options without an effect get a notice and their default, so that they do not change the recipe.
  void choose_defaults(const CLI::App& app);
  // Returns the folder of the run's page: --report, or else --save. Empty: there is none.
  std::string report_folder() const { return report == "none" ? "" : report.empty() ? save : report; }
  // Returns options for --receipt, or else for receipt.json in --save.
  ReceiptOptions receipt_options() const;
  bool has_batch_norm() const;
  bool has_momentum() const;
  void fit_own_data(const CLI::App& app);
  void check_mixing() const;
  void check_watch() const;
  void check_finder(const CLI::App& app);
  // Returns the name of the metric that decides which epoch is the best.
  std::string default_watch() const;
  // Parses --inject-flip STEP:PARAMETER. Step 0 means none.
  std::pair<std::int64_t, std::string> flip() const;
};

// Returns the names that --optimizer takes.
std::vector<std::string> optimizer_names();

// Parses --balance, which must fit the number of devices; 0 allows any number.
Balance parse_balance(const std::string& text, int devices);

}  // namespace lockstep::app
