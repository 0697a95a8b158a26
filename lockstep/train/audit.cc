#include "lockstep/train/audit.h"

#include <algorithm>
#include <bit>
#include <random>
#include <set>
#include <system_error>
#include <vector>

#include "lockstep/base/version.h"
#include "lockstep/checkpoint/checkpoint_directory.h"
#include "lockstep/checkpoint/weights.h"
#include "lockstep/receipt/digest.h"
#include "lockstep/receipt/leaf_files.h"
#include "lockstep/receipt/state_digest.h"
#include "lockstep/runtime/device_state.h"
#include "lockstep/runtime/random_state.h"
#include "lockstep/train/step_observer.h"

namespace lockstep {
namespace {

constexpr std::string_view kWeights = "weights";

template <typename... Args>
void expect(bool ok, fmt::format_string<Args...> message, Args&&... args) {
  if (!ok) throw AuditFailure("audit: " + fmt::format(message, std::forward<Args>(args)...));
}

// Returns options of a Trainer that writes, watches, and resumes nothing.
TrainerOptions replay_options(TrainerOptions options) {
  const TrainerOptions plain;
  options.save_folder.clear();
  options.save_every = plain.save_every;
  options.keep_checkpoints = plain.keep_checkpoints;
  options.resume = false;
  options.log_file.clear();
  options.tensorboard = {};
  options.receipt = {};
  options.watch = {};
  return options;
}

std::string shown(const Recipe::Value* value) { return value ? value->json() : "none"; }

// Calls `add` with the name of each entry that differs.
void for_each_difference(const Recipe& receipt, const Recipe& mine,
                         const std::function<void(const std::string&)>& add) {
  for (const auto& [name, value] : receipt) {
    const Recipe::Value* other = mine.find(name);
    if (!other || *other != value) add(name);
  }
  for (const auto& [name, value] : mine) {
    if (!receipt.contains(name)) add(name);
  }
}

// Returns an empty text if the data are those of the receipt.
std::string difference_of(const Dataset& data, const DataDigest& expected, const AuditOptions& o, const char* kind) {
  if (data.size() != expected.examples) {
    return fmt::format("{} {} examples, expected {} as in the receipt", data.size(), kind, expected.examples);
  }
  const std::vector<Digest> leaves = example_digests(data);
  if (merkle_root(leaves) == expected.root) return "";
  const auto known = o.receipt_file.empty()
                         ? std::nullopt
                         : read_leaves(leaf_file(o.receipt_file, kind), expected.examples, expected.root);
  if (!known) {
    return fmt::format("the {} data are not those of the receipt; without {} it is unknown which example differs", kind,
                       leaf_file("receipt", kind).string());
  }
  std::int64_t count = 0, first = -1;
  for (std::size_t i = 0; i < leaves.size(); ++i) {
    if (leaves[i] == (*known)[i]) continue;
    if (count++ == 0) first = static_cast<std::int64_t>(i);
  }
  return fmt::format("{} example {} (counted from 0) is not that of the receipt{}", kind, first,
                     count == 1 ? ", all others are" : fmt::format("; {} of {} differ", count, leaves.size()));
}

Digest weights_digest(const CheckpointContents& checkpoint) {
  const SafetensorsFile file = parse_safetensors(checkpoint.file("weights.safetensors"), checkpoint.path.string());
  return *parse_digest(weights_sha256_of(file.tensors));
}

// Compares the files that the receipt names with those of the run's folder. Returns their names for a message.
std::string compare_files(const Receipt& receipt, const std::filesystem::path& run) {
  std::string compared, absent;
  for (const ReceiptSubject& subject : receipt.subjects()) {
    if (subject.name == kWeights) continue;
    const std::filesystem::path name = subject.name;
    std::error_code unknown;
    // Reads only files below the folder.
    const bool below = name.is_relative() && std::ranges::find(name, std::filesystem::path("..")) == name.end();
    const bool exists = below && std::filesystem::is_regular_file(run / name, unknown);
    std::string& names = exists ? compared : absent;
    names += (names.empty() ? "" : ", ") + subject.name;
    expect(!exists || file_digest(run / name) == subject.sha256, "{}: is not the file that the receipt names",
           (run / name).string());
  }
  if (!compared.empty()) compared += ": equal";
  if (!absent.empty()) compared += fmt::format("{}not there: {}", compared.empty() ? "" : "; ", absent);
  return compared;
}

// Compares the last weights, if the receipt names them. Returns whether it does.
bool compare_weights(const Receipt& receipt, const Digest& mine, const std::string& where) {
  const auto named = std::ranges::find(receipt.subjects(), kWeights, &ReceiptSubject::name);
  if (named == receipt.subjects().end()) return false;
  expect(named->sha256 == mine, "{}: weights are {}, which the receipt names as the last ones, expected {}", where,
         hex(named->sha256), hex(mine));
  return true;
}

// Returns "parameter 0.weight", or how to find out which part differs.
std::string differing_part(const StateDigest& state, std::int64_t step, const Digest& expected,
                           const std::filesystem::path& receipt_file) {
  const auto leaves =
      receipt_file.empty() ? std::nullopt : read_state_leaves(leaf_file(receipt_file, "state"), step, expected);
  const std::string name = leaves ? first_difference(state, *leaves) : "";
  if (name.empty()) {
    return fmt::format("the state (without {} it is unknown which parameter)", leaf_file("receipt", "state").string());
  }
  return (names_weight(name) ? "parameter " : "") + name;
}

// Records where a training stands after each call of train_until(); in rank 0, also its state.
class Standing final : public StepObserver {
 public:
  std::string label() const override { return "the audit"; }
  AfterFailure after_failure() const override { return AfterFailure::ends_training; }
  void start(const TrainingStart& start) override {
    step = start.position.step;
    first_ = start.rank == 0;
  }
  void update(std::int64_t number) override { step = number; }
  void settled(const SettledStep& now, bool) override {
    loss = now.loss;
    if (first_) state = now.digest();
  }

  std::int64_t step = 0;
  double loss = 0;  // of the step
  StateDigest state;

 private:
  bool first_ = false;
};

// Trains from any state to a step.
class Replay {
 public:
  Replay(Module& module, Optimizer& optimizer, std::shared_ptr<const Dataset> train, const TrainerOptions& options)
      : module_(module),
        trainer_(module, optimizer, std::move(train), std::shared_ptr<const Dataset>(), replay_options(options)) {
    trainer_.observe(now_);
    trainer_.train_until(0);
  }

  const Recipe& recipe() const { return trainer_.recipe(); }
  const char* device() const {
    const std::vector<Device> all = module_.devices();
    return std::ranges::any_of(all, [](Device d) { return d.kind() == DeviceKind::cuda; }) ? "cuda" : "cpu";
  }
  Communicator& ranks() const { return trainer_.communicator(); }
  std::int64_t step() const { return now_->step; }
  // Returns whether the position of dropout's random numbers, which no digest covers, is that of the step. With f16
  // always true, because skipped steps draw none.
  bool resume(const std::filesystem::path& checkpoint) {
    const ResumedRun run = trainer_.resume(checkpoint);
    const std::shared_ptr<RandomState> random = state_of(module_.devices()[0], "audit").random();
    const bool follows = run.position.loss_scaler || random->step() == static_cast<std::uint64_t>(run.position.step);
    trainer_.train_until(run.position.step);
    return follows;
  }
  void train_to(std::int64_t step) {
    trainer_.train_until(step);
    check(this->step() == step, "audit: the run ends at step {}, expected a step {}, as in the receipt", this->step(),
          step);
  }
  const StateDigest& state() const { return now_->state; }
  Digest weights() const { return *parse_digest(weights_sha256(module_)); }
  double loss() const { return now_->loss; }

 private:
  Module& module_;
  const std::shared_ptr<Standing> now_ = std::make_shared<Standing>();
  Trainer trainer_;
};

// All ranks throw what rank 0 throws.
void in_rank_0(Communicator& ranks, const std::function<void()>& work) {
  std::string failure;
  ranks.agree("audit", [&] {
    if (ranks.rank() != 0) return;
    try {
      work();
    } catch (const AuditFailure& error) {
      failure = error.what();
    }
  });
  failure = ranks.broadcast_on_host(failure, "audit");
  if (!failure.empty()) throw AuditFailure(failure);
}

// The requested steps; of a range, its first and last steps and all links between them, through which it is replayed.
struct ChosenSteps {
  std::vector<std::int64_t> targets;
  std::int64_t count = 0;
};

// Chooses the steps; rank 0's random numbers count.
ChosenSteps chosen_steps(const Receipt& receipt, const AuditOptions& o, Communicator& ranks) {
  const std::int64_t first = receipt.head().start_step + 1, last = receipt.steps();
  check(first <= last, "audit: the receipt has no steps");
  std::set<std::int64_t> steps;
  if (o.range) {
    const auto [from, to] = *o.range;
    check(from >= first && from <= to && to <= last, "audit: steps {} to {}, expected some of {} to {}", from, to,
          first, last);
    steps = {from, to};
    for (const ReceiptLink& link : receipt.links()) {
      if (link.step > from && link.step < to) steps.insert(link.step);
    }
    return {{steps.begin(), steps.end()}, to - from + 1};
  }
  check(o.random_steps >= 1, "audit: {} steps, expected at least 1", o.random_steps);
  std::random_device random;
  const auto count = static_cast<std::size_t>(std::min(o.random_steps, last - first + 1));
  while (steps.size() < count) {
    const std::uint64_t bits = std::uint64_t{random()} << 32 | random();
    const auto offset = static_cast<std::int64_t>(bits % static_cast<std::uint64_t>(last - first + 1));
    steps.insert(ranks.gather_on_host(first + offset, "step to audit")[0]);
  }
  return {{steps.begin(), steps.end()}, std::ssize(steps)};
}

}  // namespace

AuditResult audit(Module& module, Optimizer& optimizer, std::shared_ptr<const Dataset> train,
                  std::shared_ptr<const Dataset> test, TrainerOptions options, const Receipt& receipt,
                  const AuditOptions& o) {
  // max_steps may be the limit of an earlier part of the run. A schedule that depends on it has it in the recipe.
  if (options.max_steps > 0) options.max_steps = std::max(options.max_steps, receipt.steps());
  // So may epochs, of which each has a step or more.
  constexpr std::int64_t kMostEpochs = std::int64_t{1} << 31;
  if (!receipt.head().recipe.contains("scheduled_steps")) {
    options.epochs = std::max(options.epochs, std::min(receipt.steps(), kMostEpochs));
  }
  Replay replay(module, optimizer, train, options);
  Communicator& ranks = replay.ranks();
  const Receipt::Head& head = receipt.head();
  const std::vector<ReceiptLink>& links = receipt.links();
  AuditResult result;
  const auto equal = [&](const std::string& what) {
    if (o.on_equal) o.on_equal(what + ": equal");
  };
  std::vector<std::filesystem::path> checkpoints;  // by step
  std::vector<std::int64_t> steps_of_checkpoints;
  in_rank_0(ranks, [&] {
    expect(head.kernel_revision == LOCKSTEP_KERNEL_REVISION,
           "the receipt has kernel revision {} (Lockstep {}), this is {} (Lockstep {}), with other bits",
           head.kernel_revision, head.version, LOCKSTEP_KERNEL_REVISION, LOCKSTEP_VERSION);
    expect(head.device == replay.device(), "the receipt is of a {}, expected a {}: their bits differ", head.device,
           replay.device());
    expect(head.test.has_value() == (test != nullptr), "{}",
           head.test ? "the receipt has test data, expected these, too" : "test data, of which the receipt has none");
    // Compares the data first, because the recipe depends on them.
    std::string data = difference_of(*train, head.train, o, "train");
    if (data.empty() && head.test) data = difference_of(*test, *head.test, o, "test");
    std::string recipe, names;
    for_each_difference(head.recipe, replay.recipe(), [&](const std::string& name) {
      names += (names.empty() ? "" : ", ") + name;
      recipe += fmt::format("{}{} {} in the receipt, {} here", recipe.empty() ? "" : "; ", name,
                            shown(head.recipe.find(name)), shown(replay.recipe().find(name)));
    });
    expect(data.empty(), "{}{}", data, names.empty() ? "" : "; so the recipe differs, too: " + names);
    expect(recipe.empty(), "the recipe differs: {}", recipe);
    equal(fmt::format("recipe: {:.8}", recipe_hash(head.recipe)));
    equal(fmt::format("data: {} training examples{}", head.train.examples,
                      head.test ? fmt::format(", {} test examples", head.test->examples) : ""));
    if (head.start_step == 0) {
      const StateDigest& start = replay.state();
      expect(start.root == head.start, "start: {} is not that of the receipt",
             differing_part(start, 0, head.start, o.receipt_file));
      equal(head.recipe.contains("init_from") ? "start: the weights that the run was given"
                                              : "start: the initial weights");
    } else if (o.on_equal) {
      o.on_equal(fmt::format("start: step {}; nothing is known of the steps before", head.start_step));
    }
    if (o.run.empty()) return;
    std::vector<std::filesystem::path> folders = checkpoints_in(o.run);
    std::ranges::reverse(folders);
    for (const std::filesystem::path& folder : folders) {
      const CheckpointContents contents = read_checkpoint(folder);
      if (contents.step < head.start_step) continue;
      const auto link = std::ranges::find(links, contents.step, &ReceiptLink::step);
      const bool begins = contents.step == head.start_step;
      expect(link != links.end() || begins, "{}: the receipt has no link of step {}", folder.string(), contents.step);
      const Digest& expected = begins ? head.start : link->state;
      const StateDigest state = state_digest(contents);
      expect(state.root == expected, "{}: {} is not that of the receipt", folder.string(),
             differing_part(state, contents.step, expected, o.receipt_file));
      if (contents.step == receipt.steps()) {
        result.final_weights = compare_weights(receipt, weights_digest(contents), folder.string());
      }
      checkpoints.push_back(folder);
      steps_of_checkpoints.push_back(contents.step);
    }
    result.checkpoints = std::ssize(checkpoints);
    if (result.checkpoints > 0) equal(fmt::format("checkpoints: {}", result.checkpoints));
    const std::string files = compare_files(receipt, o.run);
    if (o.on_equal && !files.empty()) o.on_equal("files: " + files);
  });
  result.checkpoints = ranks.gather_on_host(result.checkpoints, "checkpoints")[0];
  steps_of_checkpoints.resize(static_cast<std::size_t>(result.checkpoints));
  checkpoints.resize(steps_of_checkpoints.size());
  for (std::int64_t& step : steps_of_checkpoints) step = ranks.gather_on_host(step, "step of a checkpoint")[0];

  const ChosenSteps chosen = chosen_steps(receipt, o, ranks);
  result.steps = chosen.count;
  for (const std::int64_t step : chosen.targets) {
    // Resumes from the nearest checkpoint before the step, unless the replay has already reached that checkpoint.
    const auto index = std::ranges::lower_bound(steps_of_checkpoints, step) - steps_of_checkpoints.begin() - 1;
    const std::int64_t nearest = index < 0 ? 0 : steps_of_checkpoints[static_cast<std::size_t>(index)];
    check(std::max(nearest, replay.step()) >= head.start_step,
          "audit: step {} has no checkpoint before it in {}, and the receipt begins at step {}", step,
          o.run.empty() ? "no folder" : o.run.string(), head.start_step);
    if (nearest > replay.step()) {
      const std::filesystem::path& folder = checkpoints[static_cast<std::size_t>(index)];
      const bool follows = replay.resume(folder);
      in_rank_0(ranks, [&] {
        expect(follows, "{}: its state.json has the random numbers of another step, expected those of step {}",
               folder.string(), nearest);
        // Checks the state again, because resuming may have set another rate.
        const auto link = std::ranges::find(links, nearest, &ReceiptLink::step);
        const Digest& expected = link == links.end() ? head.start : link->state;
        const StateDigest& state = replay.state();
        expect(state.root == expected, "{}: training that goes on from it has another state than the receipt: {}",
               folder.string(), differing_part(state, nearest, expected, o.receipt_file));
      });
    }
    while (replay.step() < step) {
      const auto link = std::ranges::upper_bound(links, replay.step(), {}, &ReceiptLink::step);
      const std::int64_t before = replay.step();
      replay.train_to(link->step);
      result.trained += link->step - before;
      in_rank_0(ranks, [&] {
        const StateDigest& state = replay.state();
        const std::string where = link->step == before + 1 ? fmt::format("step {}", link->step)
                                                           : fmt::format("steps {} to {}", before + 1, link->step);
        expect(state.root == link->state, "{}: {} differs", where,
               differing_part(state, link->step, link->state, o.receipt_file));
        expect(std::bit_cast<std::uint64_t>(replay.loss()) == std::bit_cast<std::uint64_t>(link->loss),
               "{}: the loss of step {} is {}, {} in the receipt", where, link->step, replay.loss(), link->loss);
        if (link->step != receipt.steps()) return;
        result.final_weights = compare_weights(receipt, replay.weights(), where);
      });
    }
  }
  return result;
}

}  // namespace lockstep
