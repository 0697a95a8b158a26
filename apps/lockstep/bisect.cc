#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <fstream>
#include <functional>
#include <memory>
#include <set>
#include <system_error>
#include <thread>

#include "commands.h"
#include "common_options.h"
#include "lockstep/base/environment.h"
#include "lockstep/base/file.h"
#include "lockstep/tensor/dtype.h"
#include "ranks.h"
#include "temporary_folder.h"
#include "unexpected_arguments.h"
#include "watched_run.h"

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

// Both runs of one pass.
class RunPair {
 public:
  RunPair(const CommandWords& a, const CommandWords& b, const fs::path& folder, const json& request, const json& flip) {
    json of_b = request;
    if (!flip.is_null()) of_b["flip"] = flip;
    runs_.push_back(std::make_unique<WatchedRun>("A", a, folder / "a", request));
    runs_.push_back(std::make_unique<WatchedRun>("B", b, folder / "b", of_b));
  }

  std::vector<std::unique_ptr<WatchedRun>>& all() { return runs_; }
  WatchedRun& a() { return *runs_[0]; }
  WatchedRun& b() { return *runs_[1]; }

  // Reads until done() says so, or both have ended. Kills what still runs.
  void read_until(const std::function<bool()>& done) {
    while (true) {
      const bool ended = a().ended() && b().ended();
      for (auto& run : runs_) run->poll();
      if (done() || ended) break;
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
    for (auto& run : runs_) run->stop();
  }

 private:
  std::vector<std::unique_ptr<WatchedRun>> runs_;
};

// A run, and the rank if there are several.
struct Source {
  std::string run;
  std::int64_t rank = 0, ranks = 1;
  std::string device = {};

  std::string name(const Source& beside) const {
    std::string text = run;
    if (ranks > 1 && run == beside.run) text += fmt::format(", rank {}", rank);
    if (run == beside.run && rank == beside.rank) text += fmt::format(", {}", device);
    return text;
  }
};

// The first step that differs.
struct StepDifference {
  std::int64_t trainer = 0, step = 0;
  std::vector<std::string> what;  // "the loss", names of the state
  json states[2];                 // of A's and B's rank 0 after that step
};

// What one pass over the hashes of steps found.
struct StepComparison {
  std::int64_t steps = 0;  // that are equal
  std::optional<StepDifference> difference;
};

// Parts of the state, or their bits, that differ.
std::vector<std::string> differences(const json& a, const json& b) {
  std::vector<std::string> all;
  if (a.at("loss") != b.at("loss")) all.emplace_back("the loss");
  for (const auto& [name, hash] : a.at("state").items()) {
    if (b["state"].contains(name) && b["state"][name] != hash) all.push_back(name);
  }
  return all;
}

// Names that only one has make a comparison pointless.
void check_names(const json& a, const json& b) {
  const auto check_all_in = [](const json& these, const json& others, const char* one, const char* other) {
    for (const auto& [name, hash] : these.items()) {
      if (!others.contains(name))
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

// What an operation wrote, in one place.
struct Written {
  Source source;
  json record;
  std::string hash() const { return record.at("hash"); }
};

// Direction, module, operation, occurrence, shard, output: see train/step_watch.h.
struct OperationKey {
  std::string direction, module, operation;
  int occurrence = 0, shard = -1, output = 0;
  auto operator<=>(const OperationKey&) const = default;

  static OperationKey of(const json& record) {
    const json& k = record.at("operation");
    return {k.at(0).get<std::string>(), k.at(1).get<std::string>(), k.at(2).get<std::string>(),
            k.at(3).get<int>(),         k.at(4).get<int>(),         k.at(5).get<int>()};
  }
  json value() const { return {direction, module, operation, occurrence, shard, output}; }
  // The same operation of all shards.
  OperationKey stage() const { return {direction, module, operation, occurrence, shard < 0 ? -1 : 0, 0}; }
  // All calls of one shard.
  OperationKey calls() const { return {direction, module, operation, 0, shard, 0}; }

  std::string text(int shards) const {
    std::string text;
    if (direction == "batch") {
      text = fmt::format("the data, {} of the batch", module);
    } else if (direction == "loss") {
      text = "the loss";
    } else if (direction == "gradient") {
      text = fmt::format("the sum of the gradients of {} over all shards", module);
    } else if (direction == "state") {
      text = fmt::format("{} after the step", module);
    } else {
      text = fmt::format("{} {}, {} pass", operation, module.empty() ? "outside of modules" : "of module " + module,
                         direction);
      if (occurrence > 0) text += fmt::format(", call {}", occurrence + 1);
      if (output > 0) text += fmt::format(", result {}", output + 1);
    }
    if (shard >= 0) text += fmt::format(", shard {} of {}", shard, shards);
    return text;
  }
};

struct OperationDifference {
  OperationKey key;
  Written a, b;
};

// All records of the observed step in both runs.
class ObservedStep {
 public:
  void add(const Source& source, const json& record) {
    const OperationKey key = OperationKey::of(record);
    Source place = source;
    place.device = record.at("device");
    written_[key].push_back({place, record});
    int& calls = calls_[key.calls()][{place.run, place.rank, place.device}];
    calls = std::max(calls, key.occurrence + 1);
    stages_.try_emplace(key.stage(), stages_.size());
  }

  // The first that differs, in the order of operations and then of shards, which is one of every layout.
  std::optional<OperationDifference> first_difference() const {
    std::vector<const std::pair<const OperationKey, std::vector<Written>>*> order;
    for (const auto& entry : written_) {
      if (comparable(entry.first)) order.push_back(&entry);
    }
    std::ranges::sort(order, {}, [&](const auto* entry) {
      return std::tuple(stages_.at(entry->first.stage()), entry->first.shard, entry->first.output);
    });
    for (const auto* entry : order) {
      const std::vector<Written>& all = entry->second;
      for (const Written& other : all) {
        if (other.hash() != all[0].hash()) return OperationDifference{entry->first, all[0], other};
      }
    }
    return std::nullopt;
  }

 private:
  // Both runs make the same number of calls wherever they make any. Other layouts' copies are not compared.
  bool comparable(const OperationKey& key) const {
    const auto& calls = calls_.at(key.calls());
    std::set<std::string> runs;
    std::set<int> counts;
    for (const auto& [place, count] : calls) {
      runs.insert(std::get<0>(place));
      counts.insert(count);
    }
    return runs.size() == 2 && counts.size() == 1;
  }

  std::map<OperationKey, std::vector<Written>> written_;
  std::map<OperationKey, std::map<std::tuple<std::string, std::int64_t, std::string>, int>> calls_;
  std::map<OperationKey, std::size_t> stages_;  // in order of appearance
};

// The elements of one result in both runs.
struct ElementDifference {
  std::int64_t first = 0, count = 0, elements = 0;
  std::string values[2], bits[2];
};

std::string value_text(DType dtype, const std::byte* at) {
  return visit_dtype(dtype, [&]<typename T>(T value) {
    std::memcpy(&value, at, sizeof(T));
    if constexpr (is_half<T>) {
      return fmt::format("{}", static_cast<float>(value));
    } else {
      return fmt::format("{}", value);
    }
  });
}

std::string bits_text(const std::byte* at, std::size_t size) {
  std::string text;
  for (std::size_t i = size; i-- > 0;) text += fmt::format("{:02x}", static_cast<unsigned>(at[i]));
  return text;
}

DType dtype_named(const std::string& text) {
  for (const DType dtype : {DType::f32, DType::bf16, DType::f64, DType::i64, DType::u8, DType::f16}) {
    if (name(dtype) == text) return dtype;
  }
  fail("bisect: found type {}", text);
}

std::string bytes_in(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  check(file.is_open(), "cannot open {}", path);
  return {std::istreambuf_iterator<char>(file), {}};
}

std::optional<ElementDifference> compare_values(const json& a, const json& b) {
  const DType dtype = dtype_named(a.at("dtype"));
  const std::size_t size = item_size(dtype);
  const std::string of[] = {bytes_in(a.at("value")), bytes_in(b.at("value"))};
  if (a.at("dtype") != b.at("dtype") || of[0].size() != of[1].size()) return std::nullopt;
  ElementDifference found{.elements = static_cast<std::int64_t>(of[0].size() / size)};
  for (std::int64_t i = 0; i < found.elements; ++i) {
    const std::size_t at = static_cast<std::size_t>(i) * size;
    if (std::memcmp(of[0].data() + at, of[1].data() + at, size) == 0) continue;
    if (found.count++ > 0) continue;
    found.first = i;
    for (std::size_t k = 0; k < 2; ++k) {
      const auto* bytes = reinterpret_cast<const std::byte*>(of[k].data() + at);
      found.values[k] = value_text(dtype, bytes);
      found.bits[k] = bits_text(bytes, size);
    }
  }
  return found.count > 0 ? std::optional(found) : std::nullopt;
}

std::string shape_text(const json& shape) {
  return fmt::format("[{}]", fmt::join(shape.get<std::vector<std::int64_t>>(), ", "));
}

std::vector<std::int64_t> index_of(std::int64_t flat, const json& shape) {
  std::vector<std::int64_t> index(shape.size());
  for (std::size_t axis = shape.size(); axis-- > 0;) {
    const std::int64_t extent = shape[axis];
    index[axis] = flat % extent;
    flat /= extent;
  }
  return index;
}

// Both runs of the whole search.
class Bisection {
 public:
  Bisection(CommandWords a, CommandWords b, json flip, fs::path folder)
      : a_(std::move(a)), b_(std::move(b)), flip_(std::move(flip)), folder_(std::move(folder)) {}

  // Prints what was found, and returns the exit status.
  int run() {
    const StepComparison steps = compare_steps();
    if (!steps.difference) {
      fmt::print("equal: {} step{}: loss, weights, buffers, and optimizer state\n", steps.steps,
                 steps.steps == 1 ? "" : "s");
      result_ = {{"equal", true}, {"steps", steps.steps}};
      return 0;
    }
    result_["equal"] = false;
    const StepDifference& step = *steps.difference;
    if (step.what.empty()) return 1;  // one run is longer
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
    RunPair runs(a_, b_, folder_ / "steps", json::object(), flip_);
    StepComparison found;
    std::map<std::int64_t, bool> begun;  // trainers
    runs.read_until([&] {
      for (std::int64_t trainer = 0; runs.a().complete(trainer) && runs.b().complete(trainer); ++trainer) {
        if (!std::exchange(begun[trainer], true)) compare_recipes(runs, trainer);
        while (!found.difference && compare_step(runs, trainer, found)) ++found.steps;
        if (found.difference) return true;
      }
      return false;
    });
    if (found.difference) return found;
    for (auto& run : runs.all()) {
      if (!run->complete(0))
        run->fail_without("a step of a Trainer, which `lockstep train` and programs with one have");
    }
    if (!flip_.is_null() && !flipped_) {
      fail("bisect: --inject-flip: step {} has no operation '{}' of module '{}' in shard {}",
           flip_["step"].get<std::int64_t>(), flip_["operation"].get<std::string>(), flip_["module"].get<std::string>(),
           flip_["shard"].get<int>());
    }
    // The steps that only one has.
    for (auto& run : runs.all()) {
      for (auto& [place, lines] : run->files()) {
        drop_notes(lines);
        if (lines.events.empty()) continue;
        fmt::print("equal through step {}; {} has {} more step{}\n", found.steps, run->label(), lines.events.size(),
                   lines.events.size() == 1 ? "" : "s");
        result_["steps"] = found.steps;
        found.difference = StepDifference{};
        return found;
      }
    }
    return found;
  }

  void compare_recipes(RunPair& runs, std::int64_t trainer) {
    const json& a = runs.a().files().at({trainer, 0}).start;
    shards_ = a.at("shards");
    const std::string text = recipe_differences(a.at("recipe"), runs.b().files().at({trainer, 0}).start.at("recipe"));
    if (text.empty()) return;
    fmt::print("recipes differ: {}\n", text);
    std::fflush(stdout);
    result_["recipes"] = text;
  }

  // Takes lines that are no step.
  void drop_notes(WatchedRun::Lines& lines) {
    while (!lines.events.empty() && lines.events.front().contains("flipped")) {
      flipped_ = true;
      lines.events.pop_front();
    }
  }

  // Takes the next step of a Trainer. False if a rank has not written it yet.
  bool compare_step(RunPair& runs, std::int64_t trainer, StepComparison& found) {
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
      if (source.run == "B") found.difference->states[1] = event["state"];
    }
    return !found.difference;
  }

  // Runs both to the end of that step again, and returns what rank 0 of each writes there.
  std::optional<OperationDifference> compare_operations(const StepDifference& step) {
    RunPair runs(a_, b_, folder_ / "operations", request(step), flip_);
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

  void wait_for_step(RunPair& runs, const StepDifference& step) {
    const auto observed = [&](WatchedRun& run) {
      if (!run.complete(step.trainer)) return false;
      return std::ranges::all_of(run.files(), [&](const auto& file) {
        return file.first.first != step.trainer ||
               (!file.second.events.empty() && file.second.events.back().contains("observed"));
      });
    };
    runs.read_until([&] {
      // The other may still compute that step: it needs no help to come there.
      return observed(runs.a()) && observed(runs.b());
    });
    for (auto& run : runs.all()) {
      if (!observed(*run)) run->fail_without(fmt::format("step {}, which its first run had", step.step));
    }
  }

  void compare_elements(const StepDifference& step, const OperationDifference& found) {
    json wanted = request(step);
    wanted["value"] = found.key.value();
    RunPair runs(a_, b_, folder_ / "value", wanted, flip_);
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
    } else if (const auto e = a.is_null() || b.is_null() ? std::nullopt : compare_values(a, b)) {
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
    fmt::print("{}{}\n", text, inputs_text(found.key, a, b));
  }

  // All that was computed before is equal, as far as both runs have it.
  std::string inputs_text(const OperationKey& key, const json& a, const json& b) {
    if (key.direction == "gradient") return "; the gradients of each shard are equal";
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

// Splits the words at --, or at --- if there is one. The -- of `lockstep launch` belongs to it.
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
  if (commands.size() != 2 || commands[0].empty() || commands[1].empty()) {
    throw UsageError(
        fmt::format("bisect: found {} command{}, expected two: lockstep bisect -- COMMAND A -- COMMAND B; if one has a "
                    "-- of its own, write --- between them",
                    o.words.empty() ? 0 : commands.size(), commands.size() == 1 && !o.words.empty() ? "" : "s"));
  }
  const json flip = read_flip(o.flip);
  const fs::path folder = temporary_folder() / fmt::format("lockstep-bisect-{}", ::getpid());
  const std::unique_ptr<const fs::path, void (*)(const fs::path*)> made(&folder, [](const fs::path* path) {
    std::error_code left;
    fs::remove_all(*path, left);
  });
  Bisection search(commands[0], commands[1], flip, folder);
  const int status = search.run();
  if (!o.result.empty()) write_file_atomically(o.result, search.result().dump(1) + "\n");
  return status;
}

}  // namespace

Command add_bisect(CLI::App& parent) {
  auto* app = parent.add_subcommand(
      "bisect", "Find the first step and operation whose bits differ: lockstep bisect -- COMMAND A -- COMMAND B");
  auto o = std::make_shared<BisectOptions>();
  app->add_option("--json", o->result, "Also write what was found to this file, as JSON")->type_name("FILE");
  app->add_option("--inject-flip", o->flip,
                  "Flip a bit of an operation's result in B, to see it found: \"2:0:conv2d backward weights:1:7\"")
      ->type_name("STEP:MODULE:OPERATION:SHARD:ELEMENT");
  app->add_option("COMMAND", o->words, "Two commands that train, each after --, such as lockstep train --model lenet");
  app->footer(
      "Both commands train with a Trainer, as `lockstep train` does, and run up to three times: give them no --save, "
      "or "
      "different folders. Exit status: 0 if all bits are equal, 1 if not.");
  return [o] { return run(*o); };
}

}  // namespace lockstep::app
