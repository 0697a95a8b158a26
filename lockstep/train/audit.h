// Checks a receipt by training some of its steps again, in whatever layout and on whatever processor this is.
//
//   Sgd sgd(net.parameters(), {.lr = 0.1});
//   const Receipt receipt = read_receipt("run/receipt.json", "public.pem").receipt;
//   const AuditResult result =
//       audit(net, sgd, train, test, options, receipt, {.run = "run", .receipt_file = "run/receipt.json"});
//   fmt::print("{} of {} steps equal\n", result.steps, result.steps);
//
// Everything is made as for the training: the model with its initial weights, the optimizer, the data, the options.
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
  // The folder of the run's checkpoints. A step is trained from the nearest checkpoint before it. Empty: from the
  // start.
  std::filesystem::path run{};
  // The receipt's file, whose leaves beside it tell which example or parameter differs. Empty: only that one does.
  std::filesystem::path receipt_file{};
  // How many steps to choose at random, all different.
  std::int64_t random_steps = 3;
  // These steps instead, from first to last.
  std::optional<std::pair<std::int64_t, std::int64_t>> range{};
  // Called in rank 0 with what was found to be equal: "data: 60000 training examples: equal".
  std::function<void(const std::string& equal)> on_equal{};
};

struct AuditResult {
  std::int64_t steps = 0;        // that were asked for; all are equal
  std::int64_t trained = 0;      // to reach them, up to the link behind each
  std::int64_t checkpoints = 0;  // that have the state of their link
  // In rank 0: whether the weights that the receipt names were compared. They are if `run` has a checkpoint of the last
  // link, or if the steps reach it.
  bool final_weights = false;
};

// What audit() throws if something is not as the receipt says: names the recipe's entry, the example, the checkpoint,
// or the first link and the parameter.
class AuditFailure : public Error {
 public:
  using Error::Error;
};

// Collective, as Trainer::train(); only rank 0 needs the files. Compares version, recipe, data, the start, the
// checkpoints, and the files that the receipt names and `run` has; then the steps: the state and the loss of every link
// on the way, and the weights at the end. `test` may be null if the run had no test data. Of the options, those that
// write, watch, or stop are ignored. Afterwards the model has some later weights.
AuditResult audit(Module& module, Optimizer& optimizer, std::shared_ptr<const Dataset> train,
                  std::shared_ptr<const Dataset> test, TrainerOptions options, const Receipt& receipt,
                  const AuditOptions& audit = {});

}  // namespace lockstep
