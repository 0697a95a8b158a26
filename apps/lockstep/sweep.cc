#include <fcntl.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <deque>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <thread>

#include "apps/lockstep/commands.h"
#include "apps/lockstep/options/common_options.h"
#include "apps/lockstep/options/option_row.h"
#include "apps/lockstep/output.h"
#include "apps/lockstep/ranks.h"
#include "lockstep/base/file.h"
#include "lockstep/base/file_descriptor.h"
#include "lockstep/base/sha256.h"
#include "lockstep/checkpoint/checkpoint_directory.h"
#include "lockstep/checkpoint/json_input.h"
#include "lockstep/device/gpu.h"
#include "lockstep/device/topology.h"
#include "lockstep/launch/child_process.h"

namespace lockstep::app {
namespace {

namespace fs = std::filesystem;
using Words = std::vector<std::string>;

struct SweepOptions {
  std::vector<std::pair<std::string, Words>> values;  // values of each swept option
  Words command;
  std::string results = "sweep";
  std::string best;
  int at_once = 1;
};

struct SweptRun {
  Words chosen;   // one value of each swept option
  Words options;  // for `train`
  fs::path folder = {};
  std::string error = {};
  nlohmann::json result = {};
};

// Values that have commas, as of --hidden, are separated by semicolons; one may follow the last value: "256,128;".
Words split_values(const std::string& name, const std::string& text) {
  const char separator = text.find(';') != std::string::npos ? ';' : ',';
  Words values(1);
  for (const char c : text) {
    if (c == separator) {
      values.emplace_back();
    } else {
      values.back() += c;
    }
  }
  if (separator == ';' && values.back().empty()) values.pop_back();
  if (std::ranges::find(values, "") != values.end()) {
    throw UsageError(fmt::format("{}: found '{}', which has an empty value", name, text));
  }
  return values;
}

// A flag has a value, too, because a file of --config may say true where the run says false.
std::string option_word(const OptionRow& row, const std::string& value) {
  if (row.is_flag() && value != "true" && value != "false") {
    throw UsageError(fmt::format("{}: found {}, expected true, false, or both", row.name, value));
  }
  return row.name + "=" + value;
}

std::vector<SweptRun> all_runs(const SweepOptions& o) {
  std::vector<SweptRun> runs(1);
  for (const auto& [name, values] : o.values) {
    const OptionRow& row = *find_option_row(name);
    std::vector<SweptRun> more;
    for (const SweptRun& run : runs) {
      for (const std::string& value : values) {
        SweptRun next = run;
        next.chosen.push_back(value);
        next.options.push_back(option_word(row, value));
        more.push_back(std::move(next));
      }
    }
    runs = std::move(more);
  }
  return runs;
}

// Binds this thread, and so the next child, to CPUs until the destructor runs.
class CpuBinding {
 public:
  explicit CpuBinding(const std::vector<int>& cpus) {
    ::sched_getaffinity(0, sizeof(before_), &before_);
    cpu_set_t set;
    CPU_ZERO(&set);
    for (const int cpu : cpus) CPU_SET(static_cast<std::size_t>(cpu), &set);
    if (!cpus.empty()) ::sched_setaffinity(0, sizeof(set), &set);
  }
  ~CpuBinding() { ::sched_setaffinity(0, sizeof(before_), &before_); }
  CpuBinding(const CpuBinding&) = delete;
  CpuBinding& operator=(const CpuBinding&) = delete;

 private:
  cpu_set_t before_;
};

class Sweep {
 public:
  explicit Sweep(SweepOptions options) : o_(std::move(options)), runs_(all_runs(o_)) {}

  int run() {
    std::error_code unknown;
    fs::create_directories(o_.results, unknown);
    check(fs::is_directory(o_.results, unknown), "--results {}: cannot make this folder", o_.results);
    print_out("{} runs; results in {}\n", runs_.size(), o_.results);
    std::fflush(stdout);
    std::deque<std::size_t> waiting;
    for (std::size_t i = 0; i < runs_.size(); ++i) {
      if (prepare(i)) waiting.push_back(i);
    }
    train(std::move(waiting));
    print_table();
    if (std::ranges::any_of(runs_, [](const SweptRun& run) { return !run.error.empty(); })) return 1;
    const bool ranked =
        std::ranges::any_of(runs_, [&](const SweptRun& run) { return value_of(run, measure(run)).has_value(); });
    if (!ranked) fail("--best {}: no run has this metric; they have {}", o_.best, metric_names());
    return 0;
  }

 private:
  struct Place {
    std::vector<int> cpus;
    EnvironmentVariables environment;
    std::optional<std::size_t> run = {};
  };

  std::string title(const SweptRun& run) const {
    std::string text;
    for (std::size_t i = 0; i < o_.values.size(); ++i) {
      text += fmt::format("{}{} {}", text.empty() ? "" : ", ", o_.values[i].first.substr(2), run.chosen[i]);
    }
    return text;
  }

  pid_t start(const SweptRun& run, const Words& more, const fs::path& output, const EnvironmentVariables& environment) {
    ChildOptions child{.command = {own_program()}, .environment = environment};
    for (const Words* words : std::initializer_list<const Words*>{&o_.command, &run.options, &more}) {
      child.command.insert(child.command.end(), words->begin(), words->end());
    }
    const FileDescriptor out(::open(output.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666));
    check(out.get() >= 0, "cannot write {}", output.string());
    child.out = child.err = out.get();
    return start_child(child);
  }

  // Asks the run for its key. Returns false if its result is known, or if it cannot run.
  bool prepare(std::size_t index) {
    SweptRun& run = runs_[index];
    const fs::path output = fs::path(o_.results) / fmt::format("start-{}.txt", ::getpid());
    ChildProcesses child;
    // Passes --save, because options such as --save-every need it; a dry run does not write there.
    child.add(0, start(run, {"--dry-run", "--save", o_.results}, output, {}));
    std::vector<ChildExit> ended;
    while ((ended = child.reap()).empty()) std::this_thread::sleep_for(std::chrono::milliseconds(5));
    const std::string line = last_line(output);
    fs::remove(output);
    constexpr std::string_view kKey = "run ";
    if (!ended[0].ok() || !line.starts_with(kKey)) {
      // With status 2 in the first run, all runs would fail alike.
      if (ended[0].exit_status() == 2 && index == 0) throw UsageError(fmt::format("{}: {}", title(run), line));
      run.error = line;
      print_out("{}: failed: {}\n", title(run), line);
      return false;
    }
    run.folder = fs::path(o_.results) / line.substr(kKey.size(), 12);
    const auto same = std::ranges::find(runs_.begin(), runs_.begin() + static_cast<std::ptrdiff_t>(index), run.folder,
                                        &SweptRun::folder);
    if (same != runs_.begin() + static_cast<std::ptrdiff_t>(index)) {
      twins_.emplace_back(index, static_cast<std::size_t>(same - runs_.begin()));
      return false;
    }
    if (!read_result(run)) return true;
    print_out("{}: known: {}\n", title(run), outcome(run));
    return false;
  }

  static bool read_result(SweptRun& run) {
    const fs::path file = run.folder / "result.json";
    constexpr std::size_t kLargestResult = std::size_t{1} << 26;
    std::error_code unknown;
    if (!fs::exists(file, unknown)) return false;
    try {
      run.result = parse_json<nlohmann::json>(read_file(file, kLargestResult));
    } catch (const std::exception& error) {
      fail("{}: {}", file.string(), error.what());
    }
    // An older lockstep wrote it: the run goes on from its checkpoints, and is summed up again.
    if (!run.result.contains("smaller_is_better")) run.result = {};
    return !run.result.is_null();
  }

  static bool is_shards(const std::string& word) { return word.substr(0, word.find('=')) == "--shards"; }

  // Returns disjoint parts of the cores, or of the GPUs.
  std::vector<Place> places() const {
    std::vector<Place> places(static_cast<std::size_t>(o_.at_once));
    if (o_.at_once == 1) return places;
    const auto gpus = find_devices().options.cuda;
    if (!gpus.empty() && std::ranges::none_of(runs_[0].options, is_shards) &&
        std::ranges::none_of(o_.command, is_shards)) {
      throw UsageError(
          "--at-once on GPUs: expected --shards, too, which otherwise is their number and decides the bits");
    }
    const std::vector<int> cpus = available_cpus();
    const std::size_t many = gpus.empty() ? cpus.size() : gpus.size();
    if (many < places.size()) {
      throw UsageError(fmt::format("--at-once {}: there are {} {}", o_.at_once, many, gpus.empty() ? "cores" : "GPUs"));
    }
    for (std::size_t i = 0; i < many; ++i) {
      Place& place = places[i % places.size()];
      if (gpus.empty()) {
        place.cpus.push_back(cpus[i]);
      } else {
        if (place.environment.empty()) place.environment.emplace_back("CUDA_VISIBLE_DEVICES", "");
        std::string& list = place.environment[0].second;
        list += fmt::format("{}{}", list.empty() ? "" : ",", gpus[i]);
      }
    }
    return places;
  }

  void train(std::deque<std::size_t> waiting) {
    std::vector<Place> all = places();
    ChildProcesses children;
    while (!waiting.empty() || children.running()) {
      for (std::size_t p = 0; p < all.size(); ++p) {
        if (all[p].run || waiting.empty()) continue;
        const std::size_t index = waiting.front();
        waiting.pop_front();
        const SweptRun& run = runs_[index];
        fs::create_directories(run.folder);
        const CpuBinding bound(all[p].cpus);
        all[p].run = index;
        children.add(static_cast<int>(p), start(run,
                                                {"--save", run.folder.string(), "--keep", "1", "--resume", "auto",
                                                 "--log", (run.folder / "log.jsonl").string()},
                                                run.folder / "output.txt", all[p].environment));
      }
      for (const ChildExit& ended : children.reap()) {
        SweptRun& run = runs_[*all.at(static_cast<std::size_t>(ended.rank)).run];
        all[static_cast<std::size_t>(ended.rank)].run.reset();
        finish(run, ended);
      }
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
    for (const auto& [index, first] : twins_) {
      runs_[index].result = runs_[first].result;
      runs_[index].error = runs_[first].error;
    }
  }

  void finish(SweptRun& run, const ChildExit& ended) {
    if (!ended.ok()) {
      run.error = last_line(run.folder / "output.txt");
      if (run.error.empty()) run.error = ended.describe();
      print_out("{}: failed: {}\n", title(run), run.error);
    } else {
      run.result = summary(run);
      write_file_atomically(run.folder / "result.json", run.result.dump(1) + "\n");
      print_out("{}: {}\n", title(run), outcome(run));
    }
    std::fflush(stdout);
  }

  nlohmann::json summary(const SweptRun& run) const {
    nlohmann::json result{
        {"options", run.options}, {"command", o_.command}, {"smaller_is_better", nlohmann::json::array()}};
    // The step of the checkpoint that `predict` takes: the best, or else the last.
    const std::vector<fs::path> best = checkpoints_in(run.folder / "best");
    const std::int64_t best_step = best.empty() ? 0 : read_manifest(best.front()).step;
    std::ifstream log(run.folder / "log.jsonl");
    double seconds = 0;
    std::int64_t step = 0;
    for (std::string line; std::getline(log, line);) {
      const auto found = find_json<nlohmann::json>(line);
      if (!found) continue;
      const nlohmann::json& event = *found;
      const std::string kind = event.value("event", "");
      if (kind == "start") result["recipe"] = event.at("recipe");
      if (kind == "start") result["smaller_is_better"] = event.value("smaller_is_better", nlohmann::json::array());
      if (kind == "step") step = event.at("step");
      if (kind == "end") result["steps"] = event.at("steps");
      if (kind == "end") result["weights_sha256"] = event.at("weights_sha256");
      if (kind != "epoch") continue;
      seconds += event.value("seconds", 0.0);
      if (best_step > 0 && step > best_step) continue;
      result["train_loss"] = event.at("train_loss");
      result["metrics"] = nlohmann::json::object();
      if (event.contains("test_acc")) result["metrics"]["accuracy"] = event["test_acc"];
      const nlohmann::json metrics = event.value("metrics", nlohmann::json::object());
      for (const auto& [name, value] : metrics.items()) {
        if (value.is_number()) result["metrics"][name] = value;
      }
    }
    result["seconds"] = seconds;
    return result;
  }

  // Returns the metric that ranks the runs: --best, or else perplexity, the error, or accuracy.
  std::string measure(const SweptRun& run) const {
    if (!o_.best.empty()) return o_.best;
    const nlohmann::json metrics = run.result.value("metrics", nlohmann::json::object());
    for (const char* name : {"perplexity", "mean_absolute_error", "accuracy"}) {
      if (metrics.contains(name)) return name;
    }
    return "train_loss";
  }
  bool is_smaller_better(const std::string& measure) const {
    return measure == "train_loss" || std::ranges::any_of(runs_, [&](const SweptRun& run) {
             if (!run.result.is_object()) return false;  // it failed
             const nlohmann::json& names = run.result.at("smaller_is_better");
             return std::find(names.begin(), names.end(), measure) != names.end();
           });
  }
  std::optional<double> value_of(const SweptRun& run, const std::string& name) const {
    if (!run.error.empty() || run.result.is_null()) return std::nullopt;
    const nlohmann::json metrics = run.result.value("metrics", nlohmann::json::object());
    const nlohmann::json value =
        name == "train_loss" ? run.result.value(name, nlohmann::json()) : metrics.value(name, nlohmann::json());
    return value.is_number() ? std::optional(value.get<double>()) : std::nullopt;
  }
  std::string metric_names() const {
    std::string names = "train_loss";
    const nlohmann::json metrics = runs_[0].result.value("metrics", nlohmann::json::object());
    for (const auto& [name, value] : metrics.items()) {
      if (value.is_number()) names += ", " + name;
    }
    return names;
  }
  std::string outcome(const SweptRun& run) const {
    const std::string name = measure(run);
    const auto value = value_of(run, name);
    return value ? fmt::format("{} {:.4f}, train loss {:.4f}", name, *value, run.result.value("train_loss", 0.0))
                 : fmt::format("no {}", name);
  }

  void print_table() const {
    std::vector<const SweptRun*> order;
    for (const SweptRun& run : runs_) order.push_back(&run);
    std::string name = o_.best.empty() ? "train_loss" : o_.best;
    for (const SweptRun& run : runs_) {
      if (run.error.empty()) name = measure(run);
    }
    std::ranges::stable_sort(order, [&](const SweptRun* a, const SweptRun* b) {
      const auto x = value_of(*a, name), y = value_of(*b, name);
      if (!x || !y) return x.has_value() && !y;
      return is_smaller_better(name) ? *x < *y : *x > *y;
    });
    std::vector<Words> rows(1);
    for (const auto& [option, values] : o_.values) rows[0].push_back(option.substr(2));
    for (const char* head : {name.c_str(), "train_loss", "steps", "seconds", "folder"}) {
      if (head != std::string("train_loss") || name != "train_loss" || rows[0].back() != name)
        rows[0].emplace_back(head);
    }
    for (const SweptRun* run : order) {
      Words row = run->chosen;
      if (run->error.empty()) {
        const auto value = value_of(*run, name);
        row.push_back(value ? fmt::format("{:.4f}", *value) : "-");
        if (name != "train_loss") row.push_back(fmt::format("{:.4f}", run->result.value("train_loss", 0.0)));
        row.push_back(fmt::format("{}", run->result.value("steps", 0)));
        row.push_back(fmt::format("{:.1f}", run->result.value("seconds", 0.0)));
        row.push_back(run->folder.string());
      } else {
        row.push_back("failed: " + run->error);
      }
      rows.push_back(std::move(row));
    }
    std::vector<std::size_t> widths(rows[0].size(), 0);
    for (const Words& row : rows) {
      for (std::size_t c = 0; c + 1 < row.size(); ++c) widths[c] = std::max(widths[c], row[c].size());
    }
    print_out("\n");
    for (const Words& row : rows) {
      std::string line;
      for (std::size_t c = 0; c < row.size(); ++c) {
        line += c + 1 == row.size() ? row[c] : fmt::format("{:<{}}  ", row[c], widths[c]);
      }
      print_out("{}\n", line);
    }
    if (!order.empty() && value_of(*order.front(), name)) print_out("best: {}\n", title(*order.front()));
  }

  SweepOptions o_;
  std::vector<SweptRun> runs_;
  std::vector<std::pair<std::size_t, std::size_t>> twins_;  // a run, and an earlier one of the same recipe
};

bool names_option(const Words& words, std::string_view name) {
  return std::ranges::any_of(words, [&](std::string_view word) { return word.substr(0, word.find('=')) == name; });
}

// Returns whether the words let the option write: --report none does not.
bool writes(const Words& words, const std::string& name) {
  const bool is_none =
      std::ranges::count(words, name + "=none") > 0 || !std::ranges::search(words, Words{name, "none"}).empty();
  return names_option(words, name) && !(is_none && (name == "--report" || name == "--receipt"));
}

}  // namespace

Command add_sweep(CLI::App& parent) {
  auto* app = parent.add_subcommand(
      "sweep", "Train with several values of options: lockstep sweep --lr 0.01,0.1 --batch-size 64,256 -- train ...");
  auto o = std::make_shared<SweepOptions>();
  auto values = std::make_shared<std::map<std::string, std::string>>();
  app->add_option("--results", o->results,
                  "Folder for a folder of each run. A run that it has is not run again; one that was killed goes on")
      ->capture_default_str()
      ->type_name("DIR")
      ->group("Output");
  app->add_option("--best", o->best, "The metric that ranks the runs [perplexity, mean_absolute_error, or accuracy]")
      ->type_name("NAME");
  app->add_option("--at-once", o->at_once, "Runs at the same time, each on its part of the cores, or of the GPUs")
      ->check(CLI::Range(1, 1024))
      ->capture_default_str();
  for (const OptionRow& row : option_rows()) {
    if (row.decides_result()) app->add_option(row.name, (*values)[row.name])->group("");
  }
  app->add_option("COMMAND", o->command, "train and its options, after --");
  app->footer(
      "Other options are those of lockstep train that decide the result, each with its values, separated by "
      "commas: --lr 0.01,0.1; or by semicolons, for values with commas: --hidden \"256,128;64\", or \"256,128;\"; "
      "flags: "
      "--sync-bn true,false. Every combination is one run.");
  return [app, o, values] {
    check_single_process("sweep");
    for (const OptionRow& row : option_rows()) {
      if (row.decides_result() && is_given(*app, row.name))
        o->values.emplace_back(row.name, split_values(row.name, (*values)[row.name]));
    }
    if (o->command.empty() || o->command[0] != "train") {
      throw UsageError(fmt::format("sweep: found {}, expected -- train and its options",
                                   o->command.empty() ? "no command" : o->command[0]));
    }
    if (o->values.empty()) throw UsageError("sweep: expected an option with its values, such as --lr 0.01,0.1");
    for (const char* name : {"--save", "--resume", "--log", "--keep", "--dry-run", "--find-lr"}) {
      if (names_option(o->command, name)) throw UsageError(fmt::format("sweep: {} is its own: see --results", name));
    }
    for (const char* name : {"--export", "--plot", "--trace", "--weights-log", "--tensorboard", "--metrics-file",
                             "--receipt", "--report"}) {
      if (writes(o->command, name)) {
        throw UsageError(fmt::format("sweep: takes no {}: each run would replace or mix the others'", name));
      }
    }
    for (const auto& [name, list] : o->values) {
      if (names_option(o->command, name)) throw UsageError(fmt::format("sweep: {} is given on both sides of --", name));
    }
    return Sweep(*o).run();
  };
}

}  // namespace lockstep::app
