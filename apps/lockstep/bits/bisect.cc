#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <functional>
#include <memory>
#include <system_error>

#include "apps/lockstep/bits/bit_difference.h"
#include "apps/lockstep/bits/observed_step.h"
#include "apps/lockstep/bits/watched_run.h"
#include "apps/lockstep/commands.h"
#include "apps/lockstep/options/common_options.h"
#include "apps/lockstep/options/unexpected_arguments.h"
#include "apps/lockstep/output.h"
#include "apps/lockstep/ranks.h"
#include "apps/lockstep/temporary_folder.h"
#include "lockstep/base/count_of.h"
#include "lockstep/base/environment.h"
#include "lockstep/base/file.h"

namespace lockstep::app {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using CommandWords = std::vector<std::string>;

struct BisectOptions {
  CommandWords words;
  std::string flip;
  std::string result;
};

// Set by a signal. The tool then kills both commands, removes its files, and ends.
volatile std::sig_atomic_t bisect_signal = 0;
struct EndedBySignal {};

void check_signal() {
  if (bisect_signal != 0) throw EndedBySignal();
}

// The first step whose results differ.
struct StepDifference {
  std::int64_t trainer = 0, step = 0;
  std::vector<std::string> what;  // "the loss", names of the state
  json states[2];                 // of A's rank 0, and of the rank of B that differs
};

// What one comparison of the hashes of all steps found.
struct StepComparison {
  std::int64_t steps = 0;  // number of equal steps
  std::optional<StepDifference> difference;
};

// Returns the names of the parts of the state that differ, and "the loss" if its bits do.
std::vector<std::string> differences(const json& a, const json& b) {
  std::vector<std::string> all;
  if (a.at("loss") != b.at("loss")) all.emplace_back("the loss");
  for (const auto& [name, hash] : a.at("state").items()) {
    if (b["state"].contains(name) && b["state"][name] != hash) all.push_back(name);
  }
  return all;
}

// Two different models cannot be compared. Two optimizers may have different states.
void check_names(const json& a, const json& b) {
  const auto check_all_in = [](const json& these, const json& others, const char* one, const char* other) {
    for (const auto& [name, hash] : these.items()) {
      if (!others.contains(name) && !name.starts_with("optimizer/"))
        fail("bisect: {} has {}, and {} has not: expected two trainings of one model", one, name, other);
    }
  };
  check_all_in(a, b, "A", "B");
  check_all_in(b, a, "B", "A");
}

std::string recipe_differences(const json& a, const json& b) {
  std::string text;
  const auto add = [&](const std::string& name) {
    const auto of = [&](const json& recipe) {
      return recipe.contains(name) ? recipe[name].get<std::string>() : "none";
    };
    text += fmt::format("{}{} is {} in A, {} in B", text.empty() ? "" : "; ", name, of(a), of(b));
  };
  for (const auto& [name, value] : a.items()) {
    if (!b.contains(name) || b[name] != value) add(name);
  }
  for (const auto& [name, value] : b.items()) {
    if (!a.contains(name)) add(name);
  }
  return text;
}

// The whole search, which runs both commands up to three times.
class Bisection {
 public:
  Bisection(CommandWords a, CommandWords b, json flip, fs::path folder)
      : a_(std::move(a)), b_(std::move(b)), flip_(std::move(flip)), folder_(std::move(folder)) {}

  // Prints what was found, and returns the exit status.
  int run() {
    const StepComparison steps = compare_steps();
    if (!steps.difference) {
      print_out("equal: {}: loss, weights, buffers, and optimizer state{}\n", count_of(steps.steps, "step"),
                flip_.is_null() ? "" : "; the flipped bit changes none of them");
      result_ = {{"equal", true}, {"steps", steps.steps}};
      return 0;
    }
    result_["equal"] = false;
    const StepDifference& step = *steps.difference;
    if (step.what.empty()) return 1;  // one run has more steps
    const std::optional<OperationDifference> found = compare_operations(step);
    if (!found) {
      fail("bisect: step {}: {} differ, and nothing in a second run of that step: the commands do not repeat",
           step.step, fmt::join(step.what, ", "));
    }
    compare_elements(step, *found);
    return 1;
  }

  const json& result() const { return result_; }

 private:
  json request(const StepDifference& step) const { return {{"trainer", step.trainer}, {"step", step.step}}; }

  StepComparison compare_steps() {
    WatchedPair runs(a_, b_, folder_ / "steps", json::object(), flip_);
    StepComparison found;
    std::map<std::int64_t, bool> begun;  // trainers that both runs have begun
    runs.read_until([&] {
      check_signal();
      for (std::int64_t trainer = 0; runs.a().complete(trainer) && runs.b().complete(trainer); ++trainer) {
        if (!std::exchange(begun[trainer], true)) compare_recipes(runs, trainer);
        while (!found.difference && compare_step(runs, trainer, found)) ++found.steps;
        if (found.difference) return true;
      }
      const auto is_longer = [&](WatchedRun& run, WatchedRun& other) {
        if (!other.ended()) return false;
        other.check_success();
        return has_steps(run) && !has_steps(other);
      };
      return is_longer(runs.a(), runs.b()) || is_longer(runs.b(), runs.a());
    });
    if (found.difference) return found;
    for (auto& run : runs.all()) {
      if (!run->complete(0)) run->fail_without("a step of a Trainer that `bisect` can watch");
    }
    if (!flip_.is_null() && !flipped_) {
      fail("bisect: --inject-flip: step {} has no operation '{}' of module '{}' in shard {}",
           flip_["step"].get<std::int64_t>(), flip_["operation"].get<std::string>(), flip_["module"].get<std::string>(),
           flip_["shard"].get<int>());
    }
    for (auto& run : runs.all()) {
      if (!has_steps(*run)) continue;
      print_out("{} step{} equal, and {} has more\n", found.steps, found.steps == 1 ? " is" : "s are", run->label());
      result_["steps"] = found.steps;
      found.difference = StepDifference{};
      break;
    }
    return found;
  }

  // Returns whether the run has steps that the other run does not have yet.
  bool has_steps(WatchedRun& run) {
    return std::ranges::any_of(run.files(), [&](auto& file) {
      drop_notes(file.second);
      return !file.second.events.empty();
    });
  }

  void compare_recipes(WatchedPair& runs, std::int64_t trainer) {
    const json& a = runs.a().files().at({trainer, 0}).start;
    shards_ = a.at("shards");
    const std::string text = recipe_differences(a.at("recipe"), runs.b().files().at({trainer, 0}).start.at("recipe"));
    if (text.empty()) return;
    print_out("recipes differ: {}\n", text);
    std::fflush(stdout);
    result_["recipes"] = text;
  }

  // Takes lines that are not steps.
  void drop_notes(WatchedRun::Lines& lines) {
    while (!lines.events.empty() && lines.events.front().contains("flipped")) {
      flipped_ = true;
      lines.events.pop_front();
    }
  }

  // Compares the next step of a Trainer. Returns false if a rank has not written it yet, or if it differs.
  bool compare_step(WatchedPair& runs, std::int64_t trainer, StepComparison& found) {
    std::vector<std::pair<Source, WatchedRun::Lines*>> all;
    for (auto& run : runs.all()) {
      const std::int64_t ranks = run->files().at({trainer, 0}).start.at("ranks");
      for (std::int64_t rank = 0; rank < ranks; ++rank) {
        WatchedRun::Lines& lines = run->files().at({trainer, rank});
        drop_notes(lines);
        if (lines.events.empty()) return false;
        all.push_back({{run->label(), rank, ranks}, &lines});
      }
    }
    const json first = all[0].second->events.front();
    const std::int64_t step = first.at("step");
    for (auto& [source, lines] : all) {
      const json event = std::move(lines->events.front());
      lines->events.pop_front();
      check(event.at("step") == step, "bisect: A is at step {}, B at step {}: one of them resumed another run", step,
            event.at("step").get<std::int64_t>());
      check_names(first.at("state"), event.at("state"));
      if (found.difference) continue;
      const std::vector<std::string> what = differences(first, event);
      if (what.empty()) continue;
      found.difference = StepDifference{.trainer = trainer, .step = step, .what = what, .states = {first["state"], {}}};
      if (source.run == "B" && source.rank == 0) found.difference->states[1] = event["state"];
    }
    return !found.difference;
  }

  // Repeats both runs to the end of `step`, and returns the first operation that differs.
  std::optional<OperationDifference> compare_operations(const StepDifference& step) {
    WatchedPair runs(a_, b_, folder_ / "operations", request(step), flip_);
    wait_for_step(runs, step);
    ObservedStep observed;
    for (std::size_t r = 0; r < 2; ++r) {
      WatchedRun& run = *runs.all()[r];
      for (auto& [place, lines] : run.files()) {
        if (place.first != step.trainer) continue;
        const Source source{run.label(), place.second, lines.start.at("ranks")};
        for (const json& event : lines.events) {
          if (!event.contains("operation")) continue;
          if (source.rank == 0) check_repeats(run, step, step.states[r], event);
          observed.add(source, event);
        }
      }
    }
    return observed.first_difference();
  }

  static void check_repeats(const WatchedRun& run, const StepDifference& step, const json& state, const json& event) {
    const OperationKey key = OperationKey::of(event);
    if (key.direction != "state" || state.is_null() || state.at(key.module) == event.at("hash")) return;
    fail("bisect: command {} does not repeat: {} has other bits after step {} of its second run", run.label(),
         key.module, step.step);
  }

  void wait_for_step(WatchedPair& runs, const StepDifference& step) {
    const auto observed = [&](WatchedRun& run) {
      if (!run.complete(step.trainer)) return false;
      return std::ranges::all_of(run.files(), [&](const auto& file) {
        return file.first.first != step.trainer ||
               (!file.second.events.empty() && file.second.events.back().contains("observed"));
      });
    };
    runs.read_until([&] {
      check_signal();
      bool both = true;
      for (auto& run : runs.all()) {
        if (observed(*run)) {
          run->stop();  // it would go on while the other run reaches the step
        } else {
          both = false;
        }
      }
      return both;
    });
    for (auto& run : runs.all()) {
      if (!observed(*run)) run->fail_without(fmt::format("step {}, which its first run had", step.step));
    }
  }

  void compare_elements(const StepDifference& step, const OperationDifference& found) {
    json wanted = request(step);
    wanted["value"] = found.key.value();
    WatchedPair runs(a_, b_, folder_ / "value", wanted, flip_);
    wait_for_step(runs, step);
    const auto value_of = [&](const Source& source) -> json {
      for (const json& event : runs.all()[source.run == "A" ? 0 : 1]->files().at({step.trainer, source.rank}).events) {
        if (event.contains("value")) return event;
      }
      return {};
    };
    const json a = value_of(found.a.source), b = value_of(found.b.source);
    const std::string labels[] = {found.a.source.name(found.b.source), found.b.source.name(found.a.source)};
    const json shape = found.a.record.at("shape");
    result_.update({{"step", step.step},
                    {"direction", found.key.direction},
                    {"module", found.key.module},
                    {"operation", found.key.operation},
                    {"occurrence", found.key.occurrence},
                    {"shard", found.key.shard},
                    {"result", found.key.output},
                    {"shape", shape}});
    std::string text = fmt::format("step {}: {}: ", step.step, found.key.text(shards_));
    const json other = found.b.record.at("shape");
    if (shape != other || found.a.record.at("dtype") != found.b.record.at("dtype")) {
      text += fmt::format("{} {} in {}, {} {} in {}", shape_text(shape), found.a.record.at("dtype").get<std::string>(),
                          labels[0], shape_text(other), found.b.record.at("dtype").get<std::string>(), labels[1]);
    } else if (const auto e = a.is_null() || b.is_null() ? std::nullopt : compare_bits(a, b)) {
      const auto index = index_of(e->first, shape);
      text += fmt::format("element [{}] is {} ({}) in {}, {} ({}) in {}; {} of {} elements of {} differ",
                          fmt::join(index, ", "), e->values[0], e->bits[0], labels[0], e->values[1], e->bits[1],
                          labels[1], e->count, e->elements, shape_text(shape));
      result_["element"] = index;
      result_["values"] = {e->values[0], e->values[1]};
      result_["bits"] = {e->bits[0], e->bits[1]};
      result_["different"] = e->count;
      result_["elements"] = e->elements;
    } else {
      text += fmt::format("SHA-256 {} in {}, {} in {}", found.a.hash(), labels[0], found.b.hash(), labels[1]);
    }
    print_out("{}{}\n", text, inputs_text(found.key, a, b));
  }

  // Describes the inputs. Everything that both runs recorded before this operation is equal.
  std::string inputs_text(const OperationKey& key, const json& a, const json& b) {
    if (key.direction == "gradient") return "; nothing before it differs";
    if (key.direction == "state") return "; all gradients are equal";
    if (key.direction == "batch" || key.direction == "loss" || a.is_null() || b.is_null()) return "";
    const json &of_a = a.at("inputs"), &of_b = b.at("inputs");
    if (of_a.size() != of_b.size()) return "; its inputs are not comparable";
    std::size_t differ = 0;
    for (std::size_t i = 0; i < of_a.size(); ++i) differ += of_a[i] != of_b[i];
    result_["inputs_equal"] = differ == 0;
    return differ == 0 ? "; its inputs are equal"
                       : fmt::format("; {} of its {} inputs differ, too", differ, of_a.size());
  }

  CommandWords a_, b_;
  json flip_;
  fs::path folder_;
  int shards_ = 0;
  bool flipped_ = false;
  json result_ = json::object();
};

// Splits the words at --, or at --- if there is one. The -- of `lockstep launch` stays in its command.
std::vector<CommandWords> split_commands(const CommandWords& words) {
  const bool long_mark = std::ranges::find(words, "---") != words.end();
  std::vector<CommandWords> all(1);
  bool launches = false;
  for (const std::string& word : words) {
    launches = launches || word == "launch";
    if (word != (long_mark ? "---" : "--")) {
      all.back().push_back(word);
    } else if (launches && !long_mark) {
      all.back().push_back(word);
      launches = false;
    } else {
      all.emplace_back();
      launches = false;
    }
  }
  return all;
}

// STEP:MODULE:OPERATION:SHARD:ELEMENT
json read_flip(const std::string& text) {
  if (text.empty()) return {};
  std::vector<std::string> parts(1);
  for (const char c : text) {
    if (c == ':') {
      parts.emplace_back();
    } else {
      parts.back() += c;
    }
  }
  const auto number = [&](std::size_t i) { return parse_integer("--inject-flip", parts.at(i), 0, 1LL << 40); };
  try {
    check(parts.size() == 5, "--inject-flip: found {}, expected STEP:MODULE:OPERATION:SHARD:ELEMENT", text);
    return {{"step", number(0)},
            {"module", parts[1]},
            {"operation", parts[2]},
            {"shard", number(3)},
            {"element", number(4)}};
  } catch (const Error& error) {
    throw UsageError(error.what());
  }
}

int run(const BisectOptions& o) {
  check_single_process("bisect");
  const std::vector<CommandWords> commands = split_commands(o.words);
  for (std::size_t i = 0; i < commands.size() && commands.size() == 2; ++i) {
    if (commands[i].empty()) throw UsageError(fmt::format("bisect: command {} is empty", "AB"[i]));
  }
  if (commands.size() != 2) {
    throw UsageError(
        fmt::format("bisect: found {} command{}, expected two: lockstep bisect -- COMMAND A -- COMMAND B; if one has a "
                    "-- of its own, write --- between them",
                    o.words.empty() ? 0 : commands.size(), commands.size() == 1 && !o.words.empty() ? "" : "s"));
  }
  // Reports a file that cannot be written now, not after the runs.
  if (!o.result.empty()) write_file_atomically(o.result, "{}\n");
  const json flip = read_flip(o.flip);
  const fs::path folder = temporary_folder() / fmt::format("lockstep-bisect-{}", ::getpid());
  for (const int signal : {SIGINT, SIGTERM}) std::signal(signal, [](int found) { bisect_signal = found; });
  try {
    const std::unique_ptr<const fs::path, void (*)(const fs::path*)> made(&folder, [](const fs::path* path) {
      std::error_code left;
      fs::remove_all(*path, left);
    });
    Bisection search(commands[0], commands[1], flip, folder);
    const int status = search.run();
    if (!o.result.empty()) write_file_atomically(o.result, search.result().dump(1) + "\n");
    return status;
  } catch (const EndedBySignal&) {
    std::signal(bisect_signal, SIG_DFL);
    std::raise(bisect_signal);
    return 128 + bisect_signal;
  }
}

}  // namespace

Command add_bisect(CLI::App& parent) {
  auto* app = parent.add_subcommand(
      "bisect", "Find the first step and operation whose bits differ: lockstep bisect -- COMMAND A -- COMMAND B");
  auto o = std::make_shared<BisectOptions>();
  app->add_option("--json", o->result, "Also write what was found to this file, as JSON")
      ->type_name("FILE")
      ->group("Output");
  app->add_option("--inject-flip", o->flip,
                  "Flip a bit of an operation's result in B, to see it found: \"2:0:conv2d backward weights:1:7\"")
      ->type_name("STEP:MODULE:OPERATION:SHARD:ELEMENT");
  app->add_option("COMMAND", o->words, "Two commands that train, each after --, such as lockstep train --model lenet");
  app->footer(
      "Both commands train with a Trainer, as `lockstep train` does, and run up to three times: give them no "
      "--save, or different folders. Exit status: 0 if all bits are equal, 1 if not.");
  return [o] { return run(*o); };
}

}  // namespace lockstep::app
