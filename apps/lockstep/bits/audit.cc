// lockstep audit: trains steps of a run again and compares them with its receipt.
#include <fmt/ranges.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <optional>

#include "apps/lockstep/bits/training_layout.h"
#include "apps/lockstep/commands.h"
#include "apps/lockstep/options/option_row.h"
#include "apps/lockstep/options/run_config.h"
#include "apps/lockstep/output.h"
#include "apps/lockstep/ranks.h"
#include "apps/lockstep/training_setup.h"
#include "lockstep/base/environment.h"
#include "lockstep/engine/engine.h"
#include "lockstep/launch/child_process.h"
#include "lockstep/launch/launcher.h"
#include "lockstep/train/audit.h"

namespace lockstep::app {
namespace {

struct AuditCommand {
  std::string receipt, run, data, steps = "3", layout, public_key;
};

// Parses --steps: "3", a number of random steps; "5:9", first and last step; or "all".
AuditOptions chosen(const AuditCommand& o, const Receipt& receipt) {
  AuditOptions audit{.run = o.run, .receipt_file = o.receipt};
  constexpr std::int64_t kMost = std::int64_t{1} << 40;
  const std::size_t colon = o.steps.find(':');
  try {
    if (o.steps == "all") {
      audit.range = {receipt.head().start_step + 1, receipt.steps()};
    } else if (colon == std::string::npos) {
      audit.random_steps = parse_integer("--steps", o.steps, 1, kMost);
    } else {
      audit.range = {parse_integer("--steps", o.steps.substr(0, colon), 1, kMost),
                     parse_integer("--steps", o.steps.substr(colon + 1), 1, kMost)};
    }
  } catch (const Error&) {
    throw UsageError(fmt::format("--steps {}: expected a number of steps, FIRST:LAST, or all", o.steps));
  }
  if (audit.range && (audit.range->first <= receipt.head().start_step || audit.range->first > audit.range->second ||
                      audit.range->second > receipt.steps())) {
    throw UsageError(fmt::format("--steps {}: the receipt has the steps {} to {}", o.steps,
                                 receipt.head().start_step + 1, receipt.steps()));
  }
  return audit;
}

// Starts the ranks, and prints what the first of them prints.
int audit_as_ranks(const AuditCommand& o, const TrainingLayout& layout) {
  std::vector<std::string> command{own_program(), "audit", o.receipt};
  const std::pair<const char*, std::string> options[] = {{"--run", o.run},
                                                         {"--data", o.data},
                                                         {"--steps", o.steps},
                                                         {"--layout", o.layout},
                                                         {"--public-key", o.public_key}};
  for (const auto& [name, value] : options) {
    if (!value.empty()) command.insert(command.end(), {name, value});
  }
  // All ranks fail for the same reason, so rank 0's message is preferred.
  std::string error, other_error;
  const auto pass = [&](bool is_error, std::string_view line) {
    constexpr std::string_view kRank0 = "[rank 0] ", kError = "lockstep: ";
    if (!is_error && line.starts_with(kRank0)) {
      line.remove_prefix(kRank0.size());
      print_text(stdout, line);
      std::fflush(stdout);
    }
    const std::size_t begin = line.find(kError);
    std::string& text = line.starts_with(kRank0) ? error : other_error;
    if (!is_error || begin == std::string_view::npos) return;
    text = line.substr(begin + kError.size());
    text.resize(text.find_last_not_of('\n') + 1);
  };
  const LaunchResult result = launch({.command = command, .nproc_per_node = layout.processes, .output = pass});
  if (error.empty()) error = other_error;
  if (result.status == 2) throw UsageError(error);
  check(result.status == 0, "{}", error.empty() ? result.message : error);
  return 0;
}

// Returns the options of the training in the run's folder, on the devices of this layout.
TrainOptions run_options(const AuditCommand& o, const std::optional<TrainingLayout>& layout, const Receipt& receipt) {
  std::vector<std::string> more;
  if (!o.data.empty()) more = {"--data", o.data};
  TrainOptions options = read_run_config(o.run, more, true);
  const TrainOptions plain;
  options.devices = receipt.head().device == "cpu" ? "cpu" : "auto";
  options.num_devices = layout ? layout->devices : 0;
  options.cores_per_device = plain.cores_per_device;
  options.balance = plain.balance;
  options.trainer.record_steps = false;
  options.notices.clear();
  return options;
}

int audit_run(const AuditCommand& o, const std::optional<TrainingLayout>& layout) {
  const SignedReceipt found = read_receipt(o.receipt, o.public_key);
  const Receipt& receipt = found.receipt;
  const AuditOptions plan = chosen(o, receipt);
  const std::shared_ptr<ProcessGroup> group = join_ranks("auto");
  std::optional<ToolJob> job;
  try {
    TrainOptions options = run_options(o, layout, receipt);
    job.emplace(make_job(options, group));
    const bool first = job->rank() == 0;
    const auto say = [first](const std::string& text) {
      if (!first) return;
      print_out("{}\n", text);
      std::fflush(stdout);
    };
    say(fmt::format("receipt: {} links to step {}, {}", receipt.links().size(), receipt.steps(),
                    found.key_id.empty() ? "not signed"
                    : o.public_key.empty()
                        ? fmt::format("signature of key {:.16} not checked (--public-key)", found.key_id)
                        : fmt::format("signed with key {:.16}", found.key_id)));
    TrainingSetup setup = set_up_training(options, *job);
    AuditOptions audit_options = plan;
    audit_options.on_equal = say;
    const AuditResult result = audit(*setup.net, *setup.optimizer, options.source->train, options.source->validation,
                                     std::move(setup.options), receipt, audit_options);
    job->close();
    if (!result.final_weights) {
      say(
          fmt::format("the final weights were not compared: the receipt names none, or there is no checkpoint of the "
                      "last link and --steps does not reach it, as {0}:{0} does",
                      receipt.steps()));
    }
    say(fmt::format("{} of {} steps equal", result.steps, result.steps));
    return 0;
  } catch (const std::exception& error) {
    if (job) job->runtime().engine().cancel_pending(error.what());
    group->abort(message_of(error));
    throw;
  }
}

}  // namespace

Command add_audit(CLI::App& parent) {
  auto* app = parent.add_subcommand("audit", "Check the receipt of a run: train some of its steps again, anywhere");
  auto o = std::make_shared<AuditCommand>();
  app->add_option("RECEIPT", o->receipt, "The receipt that `train` wrote")->required()->check(CLI::ExistingFile);
  app->add_option("--run", o->run,
                  "The folder --save of the run: its options, and its checkpoints [that of the receipt]")
      ->check(CLI::ExistingDirectory);
  app->add_option("--data", o->data, "The data of the run [where the run had them]");
  app->add_option("--steps", o->steps, "Steps to train again: so many random ones; FIRST:LAST; all")
      ->capture_default_str();
  app->add_option("--layout", o->layout, "D: D devices in this process; PxD: P processes of D devices [1]");
  app->add_option("--public-key", o->public_key, "The receipt must be signed with the key of this one, in PEM")
      ->check(CLI::ExistingFile);
  return [o] {
    if (o->run.empty()) o->run = std::filesystem::absolute(o->receipt).parent_path().string();
    std::optional<TrainingLayout> layout;
    if (!o->layout.empty()) layout = parse_layout("--layout", o->layout);
    if (layout && layout->processes > 1 && !is_launched()) return audit_as_ranks(*o, *layout);
    return audit_run(*o, layout);
  };
}

}  // namespace lockstep::app
