// Checks a receipt by training some of its steps again, in whatever layout and on whatever processor this is.
//
//   Sgd sgd(net.parameters(), {.lr = 0.1});
//   const Receipt receipt = read_receipt("run/receipt.json", "public.pem").receipt;
//   const AuditResult result =
//       audit(net, sgd, train, test, options, receipt, {.run = "run", .receipt_file = "run/receipt.json"});
//   fmt::print("{} of {} steps equal\n", result.steps, result.steps);
//
// Make everything as for the training: the model with its initial weights, the optimizer, the data, the options.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/base/export.h"
#include "lockstep/data/dataset.h"
#include "lockstep/nn/module.h"
#include "lockstep/optim/optimizer.h"
#include "lockstep/receipt/receipt.h"
#include "lockstep/train/trainer.h"

namespace LOCKSTEP_API lockstep {

struct AuditOptions {
  // Folder of the run's checkpoints. A step is trained from the nearest checkpoint before it. Empty: from the start.
  std::filesystem::path run{};
  // Path of the receipt. The leaf files beside it tell which example or parameter differs. Empty: that stays unknown.
  std::filesystem::path receipt_file{};
  // Number of steps to choose at random, all different.
  std::int64_t random_steps = 3;
  // Audits these steps instead, from first to last.
  std::optional<std::pair<std::int64_t, std::int64_t>> range{};
  // Called in rank 0 with what was found to be equal: "data: 60000 training examples: equal".
  std::function<void(const std::string& equal)> on_equal{};
};

struct AuditResult {
  std::int64_t steps = 0;        // number of steps that were asked for; all are equal
  std::int64_t trained = 0;      // number of steps that were trained to reach them
  std::int64_t checkpoints = 0;  // number of checkpoints that are equal to the receipt
  // Whether rank 0 compared the weights that the receipt names. It does if `run` has a checkpoint of the last link, or
  // if the steps reach that link.
  bool final_weights = false;
};

// audit() throws it if something is not as the receipt says. The message names the recipe's entry, the example, the
// checkpoint, or the first link and the parameter.
class AuditFailure : public Error {
 public:
  using Error::Error;
};

// Collective, as Trainer::train(); only rank 0 needs the files. Compares version, recipe, data, the start, the
// checkpoints, and the files that the receipt names and `run` has; then, for each step, the state and the loss of every
// link on the way, and the weights at the end. `test` may be null if the run had no test data. Ignores the options that
// write, watch, or resume. Afterwards the model has the weights of the last step that was trained.
AuditResult audit(Module& module, Optimizer& optimizer, std::shared_ptr<const Dataset> train,
                  std::shared_ptr<const Dataset> test, TrainerOptions options, const Receipt& receipt,
                  const AuditOptions& audit = {});

}  // namespace lockstep
