// Base of lockstep.training: Trainer, evaluate, metrics, and the learning-rate finder.
#include <pybind11/stl/filesystem.h>

#include <map>
#include <string>
#include <utility>

#include "callbacks.h"
#include "data.h"
#include "interruptible.h"
#include "module_class.h"
#include "optimizers.h"
#include "training.h"

namespace lockstep::python {
namespace {

// Options from Python: keyword arguments with the names of the members.
class Options {
 public:
  Options(const char* what, const py::dict& values) : what_(what) {
    for (const auto& [key, value] : values) values_.emplace(key.cast<std::string>(), value);
  }
  // A member keeps its default if its argument is missing or None.
  template <typename T>
  void read(const char* name, T& member) {
    const auto found = values_.find(name);
    if (found == values_.end()) return;
    const py::handle value = found->second;
    values_.erase(found);
    if (value.is_none()) return;
    try {
      member = value.cast<T>();
    } catch (const py::cast_error&) {
      throw py::type_error(fmt::format("{}: {} is {}", what_, name, short_repr(value)));
    }
  }
  template <typename F>
  void nested(const char* name, F&& f) {
    py::dict values;
    read(name, values);
    Options inner(name, values);
    f(inner);
    inner.finish();
  }
  // Reads a function, or None.
  template <typename Signature>
  void function(const char* name, std::function<Signature>& member) {
    py::object value = py::none();
    read(name, value);
    member = function_of<Signature>(name, value);
  }
  void finish() const {
    if (!values_.empty()) throw py::type_error(fmt::format("{}: unknown option {}", what_, values_.begin()->first));
  }

 private:
  const char* what_;
  std::map<std::string, py::handle, std::less<>> values_;
};

ScheduleKind schedule_kind(const std::string& name) {
  static constexpr std::pair<const char*, ScheduleKind> kNames[] = {{"constant", ScheduleKind::constant},
                                                                    {"step", ScheduleKind::step},
                                                                    {"cosine", ScheduleKind::cosine},
                                                                    {"linear", ScheduleKind::linear},
                                                                    {"multi_step", ScheduleKind::multi_step},
                                                                    {"exponential", ScheduleKind::exponential},
                                                                    {"cosine_restarts", ScheduleKind::cosine_restarts},
                                                                    {"one_cycle", ScheduleKind::one_cycle}};
  for (const auto& [known, kind] : kNames)
    if (name == known) return kind;
  fail(
      "schedule: kind '{}', expected constant, step, cosine, linear, multi_step, exponential, cosine_restarts, or "
      "one_cycle",
      name);
}

Recipe recipe_of(const py::dict& entries) {
  Recipe recipe;
  for (const auto& [key, value] : entries) {
    const auto name = key.cast<std::string>();
    if (py::isinstance<py::bool_>(value)) {
      recipe.set(name, value.cast<bool>());
    } else if (py::isinstance<py::int_>(value)) {
      recipe.set(name, value.cast<std::int64_t>());
    } else if (py::isinstance<py::float_>(value)) {
      recipe.set(name, value.cast<double>());
    } else if (py::isinstance<py::str>(value)) {
      recipe.set(name, value.cast<std::string>());
    } else {
      throw py::type_error(fmt::format("recipe: {} is {}, expected a bool, an int, a float, or a str", name,
                                       std::string(py::repr(value))));
    }
  }
  return recipe;
}

// The function returns (loss, outputs), or a dict with the members of BatchOutputs.
BatchFunction forward_of(const py::object& function) {
  auto forward = function_of<py::object(const Example&)>("forward", function);
  if (!forward) return {};
  return [forward = std::move(forward)](const Example& batch) {
    const WithLock lock;
    const py::object result = forward(batch);
    BatchOutputs outputs;
    if (py::isinstance<py::tuple>(result) && py::len(result) == 2) {
      const py::object loss = result[py::int_(0)], outputs_of = result[py::int_(1)];
      outputs.loss = returned_as<Tensor>("forward", loss, "a tensor as loss");
      outputs.outputs = returned_as<Tensor>("forward", outputs_of, "a tensor as outputs");
    } else if (py::isinstance<py::dict>(result)) {
      Options members("forward", result);
      py::dict log;
      members.read("loss", outputs.loss);
      members.read("outputs", outputs.outputs);
      members.read("targets", outputs.targets);
      members.read("log", log);
      members.finish();
      for (const auto& [name, value] : log)
        outputs.log.emplace_back(name.cast<std::string>(), returned_as<Tensor>("forward", value, "tensors in log"));
    } else {
      throw py::type_error(
          fmt::format("forward: returned {}, expected (loss, outputs), or a dict with loss, outputs, targets, and log",
                      short_repr(result)));
    }
    return outputs;
  };
}

// Options of a Python Trainer that add observers.
struct Reports {
  RunPageOptions page;
  std::filesystem::path metrics_file;
};

TrainerOptions trainer_options(const py::dict& arguments, Reports& reports) {
  TrainerOptions o;
  Options given("Trainer", arguments);
  given.read("devices", o.devices);
  given.read("shards", o.split.shards);
  py::object balance = py::none();
  given.read("balance", balance);
  if (py::isinstance<py::str>(balance)) {
    o.split.balance = Balance::parse(balance.cast<std::string>());
  } else if (!balance.is_none()) {
    o.split.balance.weights = balance.cast<std::vector<double>>();
  }
  given.read("batch_size", o.batch_size);
  given.read("accumulate", o.accumulate);
  given.read("record_steps", o.record_steps);
  given.read("epochs", o.epochs);
  given.read("max_steps", o.max_steps);
  given.read("shuffle", o.shuffle);
  given.read("drop_last", o.drop_last);
  given.read("workers", o.workers);
  given.read("seed", o.seed);
  given.read("dtype", o.dtype);
  given.read("gradients", o.gradients);
  given.nested("loss_scaling", [&](Options& inner) {
    inner.read("initial_scale", o.loss_scaling.initial_scale);
    inner.read("growth_interval", o.loss_scaling.growth_interval);
  });
  given.function("loss", o.loss);
  given.read("label_smoothing", o.label_smoothing);
  py::object forward = py::none();
  given.read("forward", forward);
  o.forward = forward_of(forward);
  given.function("loss_weight", o.loss_weight);
  py::object transform = py::none();
  given.read("batch_transform", transform);
  if (!transform.is_none()) {
    o.batch_transform = [function = Held(transform)](const Example& batch, RandomKey key) {
      const ExampleScope scope(key);
      const WithLock lock;
      const py::object result = function.get()(*py::tuple(py::cast(batch)));
      return returned_as<Example>("batch_transform", result);
    };
  }
  given.read("metrics", o.metrics);
  given.read("clip_norm", o.clip_norm);
  given.nested("schedule", [&](Options& inner) {
    std::string kind = "constant";
    inner.read("kind", kind);
    o.schedule.kind = schedule_kind(kind);
    inner.read("base_lr", o.schedule.base_lr);
    inner.read("warmup", o.schedule.warmup);
    inner.read("step_size", o.schedule.step_size);
    inner.read("gamma", o.schedule.gamma);
    inner.function("lr_lambda", o.schedule.lr_lambda);
    inner.read("min_lr", o.schedule.min_lr);
    inner.read("milestones", o.schedule.milestones);
    inner.read("restart_steps", o.schedule.restart_steps);
    inner.read("restart_factor", o.schedule.restart_factor);
    inner.read("pct_start", o.schedule.pct_start);
    inner.read("div_factor", o.schedule.div_factor);
    inner.read("final_div_factor", o.schedule.final_div_factor);
  });
  given.read("save_folder", o.save_folder);
  given.read("save_every", o.save_every);
  given.read("resume", o.resume);
  given.read("keep_checkpoints", o.keep_checkpoints);
  given.read("log_file", o.log_file);
  given.nested("tensorboard", [&](Options& inner) {
    inner.read("folder", o.tensorboard.folder);
    inner.read("histogram_every", o.tensorboard.histogram_every);
  });
  given.nested("receipt", [&](Options& inner) {
    inner.read("file", o.receipt.file);
    inner.read("every", o.receipt.every);
    inner.read("sign_key", o.receipt.sign_key);
  });
  given.nested("watch", [&](Options& inner) {
    inner.read("metric", o.watch.metric);
    inner.read("smallest", o.watch.smallest);
    inner.read("min_delta", o.watch.min_delta);
    inner.read("patience", o.watch.patience);
    inner.read("save_best", o.watch.save_best);
  });
  given.read("average_decay", o.average_decay);
  given.nested("report", [&](Options& inner) {
    inner.read("folder", reports.page.folder);
    inner.read("title", reports.page.title);
    std::shared_ptr<DataSource> data;
    inner.read("data", data);
    reports.page.data = data;
    inner.read("origin", reports.page.origin);
  });
  given.read("metrics_file", reports.metrics_file);
  py::dict recipe;
  given.read("recipe", recipe);
  o.recipe = recipe_of(recipe);
  given.finish();
  return o;
}

py::dict values_of(const std::vector<MetricResult>& results) {
  py::dict values;
  for (const MetricResult& r : results)
    values[py::str(r.name)] = r.table.empty() ? py::object(py::float_(r.value)) : py::cast(r.table);
  return values;
}

py::dict dict_of(const NamedScalars& scalars) {
  py::dict values;
  for (const auto& [name, value] : scalars) values[py::str(name)] = value;
  return values;
}

// The data set of an object as it was when the run began: a program may change the object's attributes between runs.
class CurrentDataset : public Dataset {
 public:
  explicit CurrentDataset(py::object object)
      : now_(as_dataset(object)), size_(now_->size()), object_(std::move(object)) {}
  void begin() {
    now_ = as_dataset(object_.get());
    check(now_->size() == size_, "Trainer: a data set of {} examples, expected {} as when the Trainer was made",
          now_->size(), size_);
  }
  const Dataset& now() const { return *now_; }
  std::int64_t size() const override { return size_; }
  Example get(std::int64_t index) const override { return now_->get(index); }
  Example get(std::int64_t index, RandomKey key) const override { return now_->get(index, key); }
  Example raw(std::int64_t index) const override { return now_->raw(index); }
  Example batch(std::span<const std::int64_t> indices, std::span<const RandomKey> keys) const override {
    return now_->batch(indices, keys);
  }

 private:
  std::shared_ptr<const Dataset> now_;
  std::int64_t size_;
  Held object_;
};

// Keeps everything alive that its Trainer refers to.
class PythonTrainer {
 public:
  PythonTrainer(const py::object& model, const py::object& engine, const py::object& train, const py::object& test,
                const py::dict& options)
      : engine_(engine), rule_(engine.cast<Optimizer*>()), model_(held_module(model)) {
    data_ = std::make_shared<CurrentDataset>(train);
    if (!test.is_none()) tests_ = std::make_shared<CurrentDataset>(test);
    Reports reports;
    options_ = trainer_options(options, reports);
    const WithoutLock placing;
    trainer_ = std::make_unique<Trainer>(*model_, *rule_, data_, tests_, options_);
    if (!reports.page.folder.empty() && trainer_->communicator().rank() == 0) {
      if (options_.resume) reports.page.resumed_from = options_.save_folder;
      reports.page.runtime = &default_runtime();
      trainer_->observe(std::make_shared<RunPage>(*trainer_, std::move(reports.page)));
    }
    if (!reports.metrics_file.empty()) {
      trainer_->observe(std::make_shared<MetricsFile>(*trainer_, reports.metrics_file));
    }
  }
  // Functions of Python in the options need the lock when they are destroyed; the Trainer must be destroyed without it.
  ~PythonTrainer() {
    // Leaks the Trainer, because its threads may be in Python forever.
    if (left_threads_behind()) {
      (void)trainer_.release();
      return;
    }
    const WithoutLock ending;
    trainer_.reset();
  }
  PythonTrainer(const PythonTrainer&) = delete;
  PythonTrainer& operator=(const PythonTrainer&) = delete;
  Trainer& get() { return *trainer_; }
  AuditResult audit(const Receipt& receipt, const AuditOptions& how) {
    return lockstep::audit(*model_, *rule_, data_, tests_, options_, receipt, how);
  }
  // Call it with the interpreter lock. `self` is the object of this Trainer.
  void begin_data(py::handle self) {
    const Keeping keeping;
    for (const auto& data : {data_, tests_})
      if (data) data->begin();
    keeping.by(self);
  }
  void stop_data(bool stop) const {
    for (const auto& data : {data_, tests_})
      if (data) stop_examples(&data->now(), stop);
  }

 private:
  py::object engine_;  // kept, because an optimizer of Python makes a new engine when it is reset
  Optimizer* rule_;
  std::shared_ptr<Module> model_;
  std::shared_ptr<CurrentDataset> data_, tests_;
  TrainerOptions options_;
  std::unique_ptr<Trainer> trainer_;
};

// The functions of Python that a run calls. They often refer to the Trainer, so it keeps them only for the run.
class Callbacks {
 public:
  Callbacks(Trainer& trainer, const py::object& on_step, const py::object& on_epoch, const py::object& on_update)
      : trainer_(trainer) {
    trainer.on_step = function_of<void(const StepReport&)>("on_step", on_step);
    trainer.on_epoch = function_of<void(const EpochReport&)>("on_epoch", on_epoch);
    trainer.on_update = [call = function_of<void(std::int64_t)>("on_update", on_update)](std::int64_t step) {
      const WithLock lock;
      if (call) call(step);
      if (PyErr_CheckSignals() != 0) throw py::error_already_set();
    };
  }
  ~Callbacks() {
    trainer_.on_step = nullptr;
    trainer_.on_epoch = nullptr;
    trainer_.on_update = nullptr;
  }
  Callbacks(const Callbacks&) = delete;
  Callbacks& operator=(const Callbacks&) = delete;

 private:
  Trainer& trainer_;
};

void add_metrics(py::module_& m) {
  py::class_<Metric> metric(m, "Metric", py::dynamic_attr(), "A mean of values, one or several from each example.");
  using Function = std::optional<py::function>;
  def_keeping(
      metric,
      [](const std::string& name, const py::function& values, const Function& counted, const Function& result,
         bool table, bool smaller_is_better) {
        const std::string what = fmt::format("metric '{}'", name);
        const auto given = [](const Function& function) {
          return function ? py::object(*function) : py::object(py::none());
        };
        return new Metric{.name = name,
                          .values = function_of<Tensor(const Tensor&, const Tensor&)>(what, values),
                          .counted = function_of<Tensor(const Tensor&)>(what + ", counted", given(counted)),
                          .result = function_of<double(double)>(what + ", result", given(result)),
                          .table = table,
                          .smaller_is_better = smaller_is_better};
      },
      "name"_a, "values"_a, "counted"_a = py::none(), "result"_a = py::none(), "table"_a = false,
      "smaller_is_better"_a = false,
      "values(outputs, targets) returns the values to average; counted(targets), a mask of those that count.");
  metric.def_readonly("name", &Metric::name);
  py::module_ all = m.def_submodule("metrics", "What evaluate() measures.");
  using Ignored = std::optional<std::int64_t>;
  all.def(
      "accuracy", [](int dim, Ignored ignore) { return metrics::accuracy({.dim = dim, .ignore_index = ignore}); },
      "dim"_a = 1, "ignore_index"_a = kIgnoredLabel, "The fraction of labels whose output is the largest.");
  all.def(
      "top_k_accuracy",
      [](std::int64_t k, int dim, Ignored ignore) {
        return metrics::top_k_accuracy(k, {.dim = dim, .ignore_index = ignore});
      },
      "k"_a, "dim"_a = 1, "ignore_index"_a = kIgnoredLabel,
      "The fraction of labels whose output is among the k largest.");
  all.def(
      "perplexity", [](int dim, Ignored ignore) { return metrics::perplexity({.dim = dim, .ignore_index = ignore}); },
      "dim"_a = 1, "ignore_index"_a = kIgnoredLabel, "e to the mean cross entropy of logits and labels.");
  all.def(
      "confusion_matrix",
      [](std::int64_t classes, int dim, Ignored ignore) {
        return metrics::confusion_matrix(classes, {.dim = dim, .ignore_index = ignore});
      },
      "classes"_a, "dim"_a = 1, "ignore_index"_a = kIgnoredLabel,
      "A table: row i, column j counts the labels i for which output j is the largest.");
  all.def("mean_absolute_error", &metrics::mean_absolute_error, "Over all elements.");
  all.def("mean_squared_error", &metrics::mean_squared_error, "Over all elements.");
}

void add_reports(py::module_& m) {
  py::class_<Accuracy> accuracy(m, "Accuracy", "How many labels have the largest output.");
  accuracy.def_readonly("correct", &Accuracy::correct);
  accuracy.def_readonly("total", &Accuracy::total);
  accuracy.def_property_readonly("value", &Accuracy::value, "From 0 to 1.");
  accuracy.def("__float__", &Accuracy::value);
  accuracy.def("__repr__",
               [](const Accuracy& a) { return fmt::format("{:.4f} ({} of {})", a.value(), a.correct, a.total); });

  py::class_<StepReport> step(m, "StepReport", "What a step of training was.");
  step.def_readonly("step", &StepReport::step, "From 1, over all epochs.");
  step.def_readonly("epoch", &StepReport::epoch, "From 1.");
  step.def_readonly("loss", &StepReport::loss, "The mean over the global batch, before the update.");
  step.def_readonly("samples", &StepReport::samples);
  step.def_readonly("learning_rate", &StepReport::learning_rate);
  step.def_readonly("images_per_second", &StepReport::images_per_second);
  step.def_readonly("seconds", &StepReport::seconds);
  step.def_readonly("loss_scale", &StepReport::loss_scale);
  step.def_readonly("shares", &StepReport::shares, "How many shards each device computed.");
  step.def_readonly("batch", &StepReport::batch, "The position in the epoch, from 1.");
  step.def_readonly("batches", &StepReport::batches, "The number of batches of the epoch.");
  step.def_property_readonly("log", [](const StepReport& r) { return dict_of(r.log); });

  py::class_<EpochReport> epoch(m, "EpochReport", "What an epoch of training measured.");
  epoch.def_readonly("epoch", &EpochReport::epoch, "From 1.");
  epoch.def_readonly("seconds", &EpochReport::seconds, "Training time, without evaluation.");
  epoch.def_readonly("train_loss", &EpochReport::train_loss);
  epoch.def_readonly("test", &EpochReport::test, "The accuracy on the test data.");
  epoch.def_property_readonly("metrics", [](const EpochReport& r) { return values_of(r.metrics); });
  epoch.def_property_readonly("log", [](const EpochReport& r) { return dict_of(r.log); });
  epoch.def_readonly("data_seconds", &EpochReport::data_seconds, "In which a device waited for the loader.");
  epoch.def("__repr__", [](const EpochReport& r) {
    return fmt::format("epoch {}: train loss {:.4f}, accuracy {:.4f}, {:.1f} s", r.epoch, r.train_loss, r.test.value(),
                       r.seconds);
  });

  py::class_<TrainingResult> result(m, "TrainingResult", "What train() did. A notebook shows its curves.");
  result.def_readonly("steps", &TrainingResult::steps);
  result.def_readonly("stopped", &TrainingResult::stopped, "By request_stop().");
  result.def_readonly("stopped_early", &TrainingResult::stopped_early, "By `watch`.");
  result.def_readonly("epochs", &TrainingResult::epochs);
  result.def_property_readonly("best_epoch", [](const TrainingResult& r) { return r.best.epoch; });
  result.def_property_readonly("best_path", [](const TrainingResult& r) -> std::optional<std::filesystem::path> {
    if (r.best.path.empty()) return {};
    return r.best.path;
  });
  result.def_property_readonly(
      "failures",
      [](const TrainingResult& r) {
        std::vector<std::string> lines;
        for (const ObserverFailure& failure : r.failures) lines.push_back(failure.str());
        return lines;
      },
      "What could not be written: a line for each file, such as the log, that is incomplete.");
  result.def_readonly("last", &TrainingResult::last,
                      "The last of epochs; a test of the weights if there was nothing left to do.");
  result.def(
      "svg",
      [](const TrainingResult& r, const std::string& title) { return training_plot_svg(r.epochs, {.title = title}); },
      "title"_a = "", "The curves of the epochs, as the text of an SVG file.");
  result.def("_repr_svg_", [](const TrainingResult& r) { return training_plot_svg(r.epochs); });
}

void add_audit(py::class_<PythonTrainer>& trainer, py::module_& m) {
  py::class_<AuditResult> result(m, "AuditResult", "What an audit found to be equal.");
  result.def_readonly("steps", &AuditResult::steps, "That were asked for; all are equal.");
  result.def_readonly("trained", &AuditResult::trained, "To reach them, up to the link behind each.");
  result.def_readonly("checkpoints", &AuditResult::checkpoints, "That have the state of their link.");
  result.def_readonly("final_weights", &AuditResult::final_weights, "Whether the weights at the end were compared.");
  trainer.def("audit", [](const py::object& self, const std::filesystem::path& file,
                          const std::filesystem::path& public_key, const std::filesystem::path& run,
                          std::int64_t random_steps, std::optional<std::pair<std::int64_t, std::int64_t>> steps,
                          const py::object& on_equal) {
    auto tell = function_of<void(const std::string&)>("on_equal", on_equal);
    auto& t = self.cast<PythonTrainer&>();
    t.begin_data(self);
    const WithoutLock training;
    const SignalScope scope([&t] { t.stop_data(true); });
    t.stop_data(false);
    return t.audit(
        read_receipt(file, public_key).receipt,
        {.run = run, .receipt_file = file, .random_steps = random_steps, .range = steps, .on_equal = std::move(tell)});
  });
}

}  // namespace

void add_training(py::module_& m) {
  add_metrics(m);
  add_reports(m);
  py::class_<PythonTrainer> trainer(m, "_Trainer", py::dynamic_attr(), "The training loop of the library.");
  def_keeping(trainer,
              [](const py::object& model, const py::object& engine, const py::object& train, const py::object& test,
                 const py::dict& options) { return new PythonTrainer(model, engine, train, test, options); });
  trainer.def("train", [](const py::object& self, const py::object& on_step, const py::object& on_epoch,
                          const py::object& on_update) {
    auto& t = self.cast<PythonTrainer&>();
    t.begin_data(self);
    const Callbacks callbacks(t.get(), on_step, on_epoch, on_update);
    const WithoutLock training;
    const LeavingRun run([&t] { t.get().request_stop(); });
    // Ctrl-C ends training like an exception, between steps or in a wait for a batch.
    const SignalScope scope([&t] { t.stop_data(true); });
    t.stop_data(false);
    return t.get().train();
  });
  trainer.def("resume", [](PythonTrainer& t, const std::filesystem::path& folder) {
    const WithoutLock reading;
    return t.get().resume(folder).path;
  });
  trainer.def("resume_or_start", [](PythonTrainer& t) -> std::optional<std::filesystem::path> {
    const WithoutLock reading;
    const auto resumed = t.get().resume_or_start();
    if (!resumed) return {};
    return resumed->path;
  });
  add_audit(trainer, m);
  trainer.def("forget_recording", [](PythonTrainer& t) { t.get().forget_recording(); });
  trainer.def("request_stop", [](PythonTrainer& t) { t.get().request_stop(); });
  trainer.def("recipe", [](PythonTrainer& t) { return t.get().recipe().json(); });
  trainer.def("recipe_hash", [](PythonTrainer& t) { return recipe_hash(t.get().recipe()); });

  m.def(
      "_evaluate",
      [](const py::object& model, const py::object& data, const std::vector<Metric>& metrics, std::int64_t batch_size,
         int workers, int shards, DType dtype, const py::object& forward) -> py::object {
        const std::shared_ptr<Module> held = held_module(model);
        auto examples = as_dataset(data);
        EvaluateOptions options{.split = {.shards = shards}, .dtype = dtype, .forward = forward_of(forward)};
        std::optional<Accuracy> accuracy;
        std::vector<MetricResult> results;
        {
          const WithoutLock measuring;
          const SignalScope scope([&] { stop_examples(examples.get(), true); });
          DataLoader loader(examples, {.batch_size = batch_size, .workers = workers});
          if (metrics.empty() && !options.forward) {
            accuracy = evaluate(*held, loader, options);
          } else {
            results = evaluate(*held, loader, metrics, options);
          }
        }
        return accuracy ? py::cast(*accuracy) : values_of(results);
      },
      "model"_a, "data"_a, "metrics"_a, "batch_size"_a, "workers"_a, "shards"_a, "dtype"_a, "forward"_a);

  m.def("_find_learning_rate",
        [](const py::object& model, Optimizer& rule, const py::object& train, double first, double last,
           std::int64_t steps, double smoothing, double stop_factor, const py::dict& arguments) {
          const std::shared_ptr<Module> held = held_module(model);
          auto data = as_dataset(train);
          Reports reports;
          TrainerOptions options = trainer_options(arguments, reports);
          check(reports.page.folder.empty() && reports.metrics_file.empty(),
                "find_learning_rate: it keeps nothing, expected neither report nor metrics_file");
          LearningRateCurve curve;
          std::string svg;
          {
            const WithoutLock training;
            const SignalScope scope([&] { stop_examples(data.get(), true); });
            curve = find_learning_rate(
                *held, rule, data, std::move(options),
                {.first = first, .last = last, .steps = steps, .smoothing = smoothing, .stop_factor = stop_factor});
            const PlotPanel panels[] = {learning_rate_panel(curve)};
            svg = plot_svg(panels, learning_rate_axis());
          }
          std::vector<std::tuple<double, double, double>> points;
          for (const auto& p : curve.points) points.emplace_back(p.rate, p.loss, p.smoothed);
          return py::make_tuple(points, curve.suggestion, curve.diverged, svg);
        });
}

}  // namespace lockstep::python
