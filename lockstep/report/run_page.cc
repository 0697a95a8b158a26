#include "lockstep/report/run_page.h"

#include <fmt/ranges.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <ctime>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <optional>
#include <system_error>
#include <utility>
#include <vector>

#include "lockstep/base/count_of.h"
#include "lockstep/base/file.h"
#include "lockstep/base/printable.h"
#include "lockstep/base/version.h"
#include "lockstep/checkpoint/json_input.h"
#include "lockstep/checkpoint/weights.h"
#include "lockstep/device/topology.h"
#include "lockstep/engine/engine.h"
#include "lockstep/engine/trace.h"
#include "lockstep/nn/summary.h"
#include "lockstep/report/page_results.h"
#include "lockstep/report/page_timeline.h"
#include "lockstep/report/run_plot.h"
#include "lockstep/task/data_source.h"
#include "lockstep/train/plot_axis.h"

namespace lockstep {
namespace {

constexpr std::size_t kMostSteps = 1000;  // then neighbors are joined
constexpr std::size_t kLargestPage = std::size_t{1} << 28;

std::string utc_now() {
  const std::time_t now = std::time(nullptr);
  std::tm parts{};
  gmtime_r(&now, &parts);
  char text[32];
  return {text, std::strftime(text, sizeof text, "%Y-%m-%d %H:%M:%S UTC", &parts)};
}

// The command line of this process, as a shell would take it.
std::string command_line() {
  std::ifstream file("/proc/self/cmdline");
  const std::string words{std::istreambuf_iterator<char>(file), {}};
  std::string text;
  for (std::size_t at = 0; at < words.size();) {
    const std::string word = words.substr(at, words.find('\0', at) - at);
    at += word.size() + 1;
    text += (text.empty() ? "" : " ") + shell_quoted(word);
  }
  return text;
}

std::string operating_system() {
  std::string name;
  try {
    const std::string text = read_file("/etc/os-release", 1 << 16);
    const std::string_view key = "PRETTY_NAME=\"";
    if (const std::size_t at = text.find(key); at != std::string::npos) {
      name = text.substr(at + key.size(), text.find('"', at + key.size()) - at - key.size()) + ", ";
    }
  } catch (const Error&) {  // not all systems say
  }
  utsname names{};
  if (::uname(&names) != 0) return name;
  return fmt::format("{}{} {} {}", name, names.sysname, names.release, names.machine);
}

std::string memory_text(std::size_t bytes) { return fmt::format("{:.1f} GiB", static_cast<double>(bytes) / (1 << 30)); }

std::string minutes_text(double seconds) {
  if (seconds < 100) return fmt::format("{:.1f} s", seconds);
  const auto whole = static_cast<std::int64_t>(seconds);
  if (whole < 3600) return fmt::format("{}:{:02} min", whole / 60, whole % 60);
  return fmt::format("{}:{:02} h", whole / 3600, whole / 60 % 60);
}

}  // namespace

class RunPage::Contents {
 public:
  Contents(Trainer& trainer, RunPageOptions options)
      : trainer_(trainer), options_(std::move(options)), file_(options_.folder / "report.html") {}

  void start(const TrainingStart& start);
  void step(const StepReport& report);
  void epoch(const EpochReport& report);
  void end(const TrainingResult& result);
  void abort(const std::string& why);

 private:
  // Ends the recording unless a step has ended it already.
  void end_timeline();
  void take_steps(const TrainingPosition& start);
  std::string data() const;
  void look_at_layers();
  void add_facts(ReportPage& page) const;
  void write(ReportPage page);
  void write_now_and_then();
  std::string running_status() const;
  const TrainerOptions& training() const { return trainer_.options(); }

  Trainer& trainer_;
  const RunPageOptions options_;
  const std::filesystem::path file_;
  Module* module_ = nullptr;
  std::vector<PageStep> steps_;
  std::int64_t each_ = 1;  // steps in one element of steps_
  std::int64_t first_step_ = 0;
  std::int64_t last_step_ = 0;
  std::vector<LayerSummary> layers_;
  std::chrono::steady_clock::time_point written_ = std::chrono::steady_clock::now();
  const std::string started_ = utc_now();
  std::vector<EpochReport> epochs_;  // of the whole run, including those before it was resumed
  std::int64_t whole_epochs_ = 0;    // of epochs_; max_steps may cut the last one short
  bool epoch_ends_ = true;           // with the last step

  std::optional<Timeline> own_timeline_;
  const Timeline* timeline_ = nullptr;
  std::int64_t window_begin_ = 0, window_first_ = 0;
  std::optional<PageTimeline> window_;
};

RunPage::RunPage(Trainer& trainer, RunPageOptions options)
    : contents_(std::make_unique<Contents>(trainer, std::move(options))) {}
RunPage::~RunPage() = default;

void RunPage::start(const TrainingStart& start) { contents_->start(start); }
void RunPage::step(const StepReport& report) { contents_->step(report); }
void RunPage::epoch(const EpochReport& report) { contents_->epoch(report); }
void RunPage::end(const TrainingResult& result) { contents_->end(result); }
void RunPage::abort(const std::string& why) { contents_->abort(why); }

void RunPage::Contents::start(const TrainingStart& start) {
  const bool first = std::exchange(module_, start.module) == nullptr;
  epochs_ = start.position.epochs;
  whole_epochs_ = std::ssize(epochs_);
  last_step_ = start.position.step;
  // A second train() goes on with the page, maybe from an earlier checkpoint.
  std::erase_if(steps_, [&](const PageStep& s) { return s.step > last_step_; });
  if (!first) return;
  first_step_ = last_step_;
  if (last_step_ > 0) take_steps(start.position);
  // A folder that cannot be written is an error now, not after hours.
  write({.status = running_status()});
  timeline_ = options_.timeline;
  const bool records = timeline_ == nullptr && options_.runtime != nullptr && !options_.runtime->engine().tracing();
  if (records) timeline_ = &own_timeline_.emplace(*options_.runtime);
}

void RunPage::Contents::take_steps(const TrainingPosition& start) {
  const std::filesystem::path& resumed = options_.resumed_from;
  for (const std::filesystem::path& file : {file_, resumed / "report.html", resumed.parent_path() / "report.html"}) {
    std::error_code unknown;
    if (!std::filesystem::is_regular_file(file, unknown)) continue;
    try {
      const auto data = parse_json<nlohmann::json>(read_page_data(read_file(file, kLargestPage)));
      if (data.at("recipe") != recipe_hash(trainer_.recipe())) continue;
      steps_.clear();
      each_ = std::max<std::int64_t>(1, data.at("each").get<std::int64_t>());
      for (const auto& s : data.at("steps")) {
        const auto number = [&](std::size_t i) { return s.at(i).is_null() ? NAN : s.at(i).get<double>(); };
        const PageStep step{s.at(0).get<std::int64_t>(),
                            s.at(1).get<std::int64_t>(),
                            s.at(2).get<std::int64_t>(),
                            number(3),
                            number(4),
                            number(5)};
        if (step.step <= start.step) steps_.push_back(step);
      }
      return;
    } catch (const std::exception&) {
      steps_.clear();  // the page of another version, or not a page
      each_ = 1;
    }
  }
}

std::string RunPage::Contents::data() const {
  nlohmann::json steps = nlohmann::json::array();
  for (const PageStep& s : steps_) {
    steps.push_back({s.step, s.epoch, s.count, s.loss, s.learning_rate, s.images_per_second});
  }
  return nlohmann::json{{"version", 1}, {"recipe", recipe_hash(trainer_.recipe())}, {"each", each_}, {"steps", steps}}
      .dump();
}

void RunPage::Contents::step(const StepReport& r) {
  constexpr std::int64_t kWarmUp = 3, kWindow = 20;
  last_step_ = r.step;
  epoch_ends_ = r.batch == r.batches;
  const PageStep step{r.step, r.epoch, 1, r.loss, r.learning_rate, r.images_per_second};
  if (steps_.empty() || steps_.back().count >= each_ || steps_.back().step != r.step - 1) {
    steps_.push_back(step);
  } else {
    add_step(steps_.back(), step);
  }
  if (steps_.size() > kMostSteps) {
    std::vector<PageStep> joined;
    for (const PageStep& s : steps_) {
      const bool joins = !joined.empty() && joined.back().count <= each_ && joined.back().step == s.step - s.count;
      if (joins) {
        add_step(joined.back(), s);
      } else {
        joined.push_back(s);
      }
    }
    each_ *= 2;
    steps_ = std::move(joined);
  }
  // A report comes when its step is over; later steps are in flight. The window ends with the epoch, because tests
  // follow.
  if (window_first_ > 0) {
    if (epoch_ends_ || r.step >= window_first_ + kWindow) end_timeline();
  } else if (timeline_ && !epoch_ends_ && r.step >= first_step_ + kWarmUp) {
    window_begin_ = timeline_->trace().elapsed_ns();
    window_first_ = r.step;
  }
  write_now_and_then();
}

void RunPage::Contents::epoch(const EpochReport& report) {
  epochs_.push_back(report);
  whole_epochs_ += epoch_ends_ ? 1 : 0;
  write_now_and_then();
}

void RunPage::Contents::end_timeline() {
  if (!timeline_) return;
  const std::shared_ptr<void> over(nullptr, [this](void*) {
    timeline_ = nullptr;
    own_timeline_.reset();
  });
  const std::int64_t end = timeline_->trace().elapsed_ns();
  const std::int64_t steps = last_step_ - (window_first_ > 0 ? window_first_ : first_step_);
  if (steps < 1) return;
  window_ = describe_timeline(timeline_->trace(), window_begin_, end, steps);
  window_->what = window_first_ > 0 ? fmt::format("Steps {} to {}", window_first_ + 1, last_step_)
                                    : fmt::format("The first {} steps, with the start{}", steps,
                                                  epochs_.empty() ? "" : " and the tests");
  if (trainer_.communicator().world_size() > 1) window_->what += window_first_ > 0 ? " of rank 0" : ", of rank 0";
}

std::string RunPage::Contents::running_status() const {
  return fmt::format("running: step {}, epoch {} of {}, at {}", with_commas(last_step_), std::ssize(epochs_) + 1,
                     training().epochs, utc_now());
}

void RunPage::Contents::write_now_and_then() {
  constexpr std::chrono::seconds kPause{30};
  if (std::chrono::steady_clock::now() - written_ < kPause) return;
  look_at_layers();
  write({.status = running_status()});
}

// Does nothing for a run that never began because another observer could not start, so that an older page stays.
void RunPage::Contents::abort(const std::string& why) {
  if (module_ == nullptr) return;
  end_timeline();
  write({.status = fmt::format("failed after step {}: {}", with_commas(last_step_), why), .good = false});
}

void RunPage::Contents::end(const TrainingResult& result) {
  end_timeline();
  ReportPage page;
  if (result.stopped) {
    page.status = fmt::format("interrupted at step {}, at {}", with_commas(result.steps), utc_now());
    page.good = false;
  } else if (result.stopped_early) {
    page.status = fmt::format("ended after step {}, at {}: {} without a better value", with_commas(result.steps),
                              utc_now(), count_of(training().watch.patience, "epoch"));
  } else {
    page.status = fmt::format("finished at {}", utc_now());
  }
  page.best_epoch = result.best.epoch;
  const bool known = module_ != nullptr && std::ranges::all_of(module_->parameters(), &Parameter::shape_known);
  if (known) {
    look_at_layers();
    page.hashes.emplace_back("weights", weights_sha256(*module_));
    try {
      std::optional<AveragedWeights> averaged;
      if (trainer_.average()) averaged.emplace(*trainer_.average());
      if (averaged) page.hashes.emplace_back("average of the weights", weights_sha256(*module_));
      const std::chrono::milliseconds limit = result.stopped ? std::chrono::seconds(3) : std::chrono::seconds(15);
      if (options_.data && options_.data->validation)
        page.results = examine(*module_, *options_.data, training(), limit);
      if (page.results) page.results->averaged = averaged.has_value();
    } catch (const std::exception& error) {
      page.status += fmt::format("; the test examples could not be shown: {}", error.what());
    }
  }
  write(std::move(page));
}

// Runs the model once, on one example.
void RunPage::Contents::look_at_layers() {
  if (!layers_.empty() || module_ == nullptr) return;
  const std::int64_t index = 0;
  const RandomKey key{};
  try {
    check(options_.data && options_.data->validation, "page: no examples");
    Tensor x = options_.data->validation->batch({&index, 1}, {&key, 1}).at(0);
    if (is_floating(x.dtype())) x = x.to(training().dtype);
    layers_ = summarize_layers(*module_, [&] { module_->forward(input_for(*module_, x)); });
  } catch (const std::exception&) {
    layers_ = summarize_layers(*module_, [] {});  // without shapes of outputs
  }
}

void RunPage::Contents::add_facts(ReportPage& page) const {
  const Recipe& recipe = trainer_.recipe();
  const auto text_of = [&](std::string_view name) {
    const Recipe::Value* const value = recipe.find(name);
    const std::string* const text = value ? value->as<std::string>() : nullptr;
    return text ? *text : std::string();
  };
  page.title = options_.title.empty() ? text_of("model") : options_.title;
  double seconds = 0;
  for (const EpochReport& e : epochs_) seconds += e.seconds;
  if (!epochs_.empty()) {
    const EpochReport& last = epochs_.back();
    // A run that was interrupted or failed may have steps after its last epoch report.
    const bool is_old = !steps_.empty() && steps_.back().epoch > last.epoch;
    const std::string when = is_old ? fmt::format(", epoch {}", last.epoch) : "";
    if (last.test.total > 0)
      page.headline.emplace_back("test accuracy" + when, fmt::format("{:.4f}", last.test.value()));
    for (const MetricResult& m : last.metrics) {
      if (m.name == "accuracy" || !m.table.empty()) continue;
      std::string name = "test " + m.name;
      std::ranges::replace(name, '_', ' ');
      page.headline.emplace_back(name + when, plain_number(m.value));
    }
    page.headline.emplace_back("train loss" + when, plain_number(last.train_loss));
  } else if (!steps_.empty()) {
    page.headline.emplace_back("loss", plain_number(steps_.back().loss));
  }
  page.headline.emplace_back("steps", with_commas(last_step_));
  page.headline.emplace_back("epochs", fmt::format("{} of {}", whole_epochs_, training().epochs));
  if (seconds > 0) page.headline.emplace_back("training time", minutes_text(seconds));
  if (!steps_.empty()) {
    page.headline.emplace_back("examples per second", with_commas(std::llround(steps_.back().images_per_second)));
  }
  if (!layers_.empty()) page.headline.emplace_back("parameters", with_commas(module_->parameter_count()));

  for (const auto& [name, value] : recipe) {
    const std::string* text = value.as<std::string>();
    page.recipe.emplace_back(name, text ? *text : value.json());
  }
  if (options_.origin) page.command = command_line();
  page.hashes.insert(page.hashes.begin(), {"recipe", recipe_hash(recipe)});
  if (const std::string data = text_of("data"); !data.empty()) page.hashes.emplace_back("training data", data);
  if (options_.data) page.hashes.emplace_back("schema of the data", schema_hash(options_.data->schema));
  if (const std::string start = text_of("init_from"); !start.empty())
    page.hashes.emplace_back("initial weights", start);

  for (const Device device : training().devices) {
    const DeviceInfo& info = *device.info();
    page.machine.emplace_back(info.name,
                              info.kind == DeviceKind::cuda
                                  ? fmt::format("{}, {}", info.model, memory_text(info.memory_bytes))
                                  : fmt::format("{} of {}", count_of(std::ssize(info.cpus), "core"), info.model));
  }
  if (const Communicator& ranks = trainer_.communicator(); !ranks.alone()) {
    page.machine.emplace_back(
        "ranks", fmt::format("{}, joined by {}; this is rank 0's machine", ranks.world_size(), ranks.backend_name()));
  }
  char host[256] = {};
  if (options_.origin && ::gethostname(host, sizeof host - 1) == 0) page.machine.emplace_back("host", host);
  page.machine.emplace_back("processor",
                            fmt::format("{}, {} cores for this process", cpu_model_name(), available_cpus().size()));
  page.machine.emplace_back("memory", memory_text(total_memory()));
  page.machine.emplace_back("system", operating_system());
  page.machine.emplace_back("Lockstep",
                            fmt::format("{}, kernel revision {}", LOCKSTEP_VERSION, LOCKSTEP_KERNEL_REVISION));
  page.machine.emplace_back("started", started_);
}

void RunPage::Contents::write(ReportPage page) {
  written_ = std::chrono::steady_clock::now();
  add_facts(page);
  const bool by_others = options_.data && options_.data->schema.task != TaskKind::classification;
  page.steps = steps_;
  page.panels = run_panels(epochs_, training().metrics, by_others);
  page.epochs = epochs_;
  page.planned_epochs = training().epochs;
  page.timeline = window_;
  page.layers = layers_;
  page.data = data();
  std::error_code error;
  std::filesystem::create_directories(file_.parent_path(), error);
  check(!error, "page: cannot make the folder {}: {}", file_.parent_path().string(), error.message());
  write_file_atomically(file_, report_html(page));
}

}  // namespace lockstep
