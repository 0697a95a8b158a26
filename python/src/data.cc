// The C++ side of lockstep.utils.data and lockstep.datasets: data sets, orders, and the loop that makes batches in
// background threads.
#include "data.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <filesystem>
#include <mutex>
#include <utility>

#include "held.h"
#include "interruptible.h"
#include "lockstep/runtime/living_runtimes.h"
#include "lockstep/runtime/random_state.h"

namespace lockstep::python {
namespace {

using Seed = std::optional<std::uint64_t>;

class PythonDataset : public Dataset {
 public:
  explicit PythonDataset(py::object object)
      : size_(static_cast<std::int64_t>(py::len(object))),
        examples_(py::module_::import("lockstep.utils.data").attr("_Examples")(object)) {}
  std::int64_t size() const override { return size_; }
  Example get(std::int64_t index, RandomKey key) const override { return get(index, key, false); }
  // Used by a pass over all examples, such as that of a receipt: random transforms have a key that depends on the index
  // alone, so that each pass gets the same examples.
  Example get(std::int64_t index) const override {
    return get(index, random_key(0, {hash_name("example"), static_cast<std::uint64_t>(index)}), true);
  }
  mutable std::atomic<bool> stopped = false;

 private:
  Example get(std::int64_t index, RandomKey key, bool every) const {
    const ExampleScope scope(key);
    const WithLock lock;
    check(!stopped, "dataset: the loop has ended");
    return examples_.get()(index, every).cast<Example>();
  }

  std::int64_t size_;
  Held examples_;
};

// Pictures u8 [n, channels, height, width], which are returned as f32 in [0, 1], with labels.
class BytePictures : public TensorDataset {
 public:
  using TensorDataset::get, TensorDataset::TensorDataset;
  Example get(std::int64_t index) const override { return to_float(TensorDataset::get(index)); }
  Example batch(std::span<const std::int64_t> indices, std::span<const RandomKey> keys) const override {
    return to_float(TensorDataset::batch(indices, keys));
  }

 private:
  static Example to_float(Example example) {
    const Tensor bytes = example[0];
    if (bytes.dtype() != DType::u8) return example;
    example[0] = Tensor::host(bytes.shape());
    const auto* in = bytes.data_ptr<const std::uint8_t>();
    std::transform(in, in + bytes.numel(), example[0].data_ptr<float>(),
                   [](std::uint8_t shade) { return static_cast<float>(shade) / 255.0f; });
    return example;
  }
};

class GivenOrder : public Sampler {
 public:
  explicit GivenOrder(std::vector<std::int64_t> order) : order_(std::move(order)) {}
  std::vector<std::int64_t> order(std::int64_t) const override { return order_; }

 private:
  std::vector<std::int64_t> order_;
};

// One loop over the batches of an order. With a splitter, each batch is cut into this rank's shards.
class BatchLoop {
 public:
  BatchLoop(std::shared_ptr<const Dataset> data, std::vector<std::int64_t> order, DataLoaderOptions options,
            std::int64_t epoch, std::shared_ptr<BatchSplitter> splitter)
      : splitter_(std::move(splitter)), loader_(std::move(data), with(std::move(options), std::move(order))) {
    loader_.set_epoch(epoch);
  }
  // Releases the interpreter lock, because the workers may wait for it.
  ~BatchLoop() {
    const WithoutLock joining;
    at_.reset();
  }
  BatchLoop(const BatchLoop&) = delete;
  BatchLoop& operator=(const BatchLoop&) = delete;

  // Threads take turns, one at a time.
  std::optional<std::vector<Tensor>> next() {
    const SignalScope scope;
    std::unique_lock turn(mutex_, std::defer_lock);
    while (!turn.try_lock_for(std::chrono::milliseconds(50))) check_interruption();
    if (at_) {
      ++*at_;
    } else {
      at_.emplace(splitter_ ? splitter_->begin_loop(loader_) : loader_.begin());
    }
    if (*at_ == loader_.end()) return {};
    const Example& batch = **at_;
    return splitter_ ? splitter_->split_loop(batch, at_->examples(), batch.size()) : batch;
  }

 private:
  static DataLoaderOptions with(DataLoaderOptions options, std::vector<std::int64_t> order) {
    options.sampler = std::make_shared<GivenOrder>(std::move(order));
    return options;
  }

  std::shared_ptr<BatchSplitter> splitter_;
  DataLoader loader_;
  std::timed_mutex mutex_;
  std::optional<DataLoader::Iterator> at_;
};

// Keys of random draws must not depend on the thread: a worker must not draw from the program's random state.
struct WorkerScope {
  std::optional<KeyedScope> scope;
};

using DatasetClass = py::class_<Dataset, std::shared_ptr<Dataset>>;

void add_datasets(py::module_& m) {
  DatasetClass dataset(m, "CoreDataset", "A data set of the C++ library. Items are tuples of tensors.");
  dataset.def("__len__", &Dataset::size);
  dataset.def("__deepcopy__", [](const std::shared_ptr<Dataset>& data, const py::dict&) { return data; });
  dataset.def("__getitem__", [](const Dataset& data, std::int64_t index) {
    const std::int64_t size = data.size();
    if (index < -size || index >= size)
      throw py::index_error(fmt::format("dataset: index {} of {} examples", index, size));
    Example example;
    {
      const WithoutLock reading;
      example = data.get(index < 0 ? index + size : index);
    }
    return py::tuple(py::cast(example));
  });
  dataset.def(
      "batch",
      [](const Dataset& data, const std::vector<std::int64_t>& indices, std::uint64_t seed, std::int64_t epoch) {
        std::vector<RandomKey> keys;
        for (const std::int64_t index : indices)
          keys.push_back(random_key(
              seed, {hash_name("transform"), static_cast<std::uint64_t>(epoch), static_cast<std::uint64_t>(index)}));
        return data.batch(indices, keys);
      },
      "indices"_a, "seed"_a = 0, "epoch"_a = 0, released(), "The parts of these examples, each stacked on axis 0.");

  m.def("as_dataset", [](py::handle object) { return std::const_pointer_cast<Dataset>(as_dataset(object)); });
  m.def(
      "tensor_dataset",
      [](std::vector<Tensor> tensors) {
        for (Tensor& x : tensors) x = x.to_host();
        return std::shared_ptr<Dataset>(std::make_shared<TensorDataset>(std::move(tensors)));
      },
      released());
  m.def(
      "byte_pictures",
      [](const Tensor& pictures, const Tensor& labels) {
        return std::shared_ptr<Dataset>(
            std::make_shared<BytePictures>(std::vector{pictures.to_host(), labels.to_host()}));
      },
      released());
  m.def(
      "concat_dataset",
      [](const std::vector<std::shared_ptr<Dataset>>& parts) {
        return std::shared_ptr<Dataset>(
            std::make_shared<ConcatDataset>(std::vector<std::shared_ptr<const Dataset>>(parts.begin(), parts.end())));
      },
      released());
  m.def(
      "subset",
      [](std::shared_ptr<Dataset> inner, std::vector<std::int64_t> indices) {
        return std::shared_ptr<Dataset>(std::make_shared<Subset>(std::move(inner), std::move(indices)));
      },
      released());
  m.def(
      "fashion_mnist",
      [](const std::string& folder, bool train) {
        return std::shared_ptr<Dataset>(
            std::make_shared<FashionMnist>(load_fashion_mnist(train ? MnistPart::train : MnistPart::test, folder)));
      },
      released());
  m.def("find_fashion_mnist", [](const std::string& folder) { return find_fashion_mnist(folder).string(); });

  py::class_<ImageFolder, Dataset, std::shared_ptr<ImageFolder>> folder(m, "CoreImageFolder");
  folder.def(py::init([](const std::string& root, std::int64_t channels, std::int64_t max_pixels) {
               return std::make_shared<ImageFolder>(root,
                                                    ImageFolderOptions{.channels = channels, .max_pixels = max_pixels});
             }),
             released());
  folder.def_property_readonly("classes", &ImageFolder::classes);
  folder.def_property_readonly("channels", &ImageFolder::channels);
  folder.def("label", &ImageFolder::label);
  folder.def("path", [](const ImageFolder& f, std::int64_t i) { return f.path(i).string(); });
  folder.def("__str__", &ImageFolder::str);
  m.def(
      "read_image",
      [](const std::string& path, std::int64_t channels, std::int64_t max_pixels) {
        return read_image(path, {.channels = channels, .max_pixels = max_pixels});
      },
      released());
  m.def(
      "write_png", [](const std::string& path, const Tensor& image) { write_png(path, image); }, released());
  m.def("encode_png", [](const Tensor& image) {
    std::string file;
    {
      const WithoutLock encoding;
      file = encode_png(image);
    }
    return py::bytes(file);
  });
}

// Returns what decides the next draws of this thread: the seed, the step, the number of parameters that have initial
// values by the seed, and the number of draws of each shard in this step.
std::vector<std::uint64_t> random_state() {
  RandomState& random = current_random("get_rng_state");
  random.settle_steps();
  const RandomState::Position position = random.position();
  std::vector<std::uint64_t> words{random.seed(), position.step, random.seeding()->count(0)};
  words.insert(words.end(), position.draws.begin(), position.draws.end());
  return words;
}

void set_random_state(const std::vector<std::uint64_t>& words) {
  check(words.size() >= 3, "set_rng_state: a state of {} numbers, expected at least 3", words.size());
  manual_seed(words[0]);
  RandomState& random = current_random("set_rng_state");
  RandomState::Position position = random.position();
  position.step = words[1];
  position.draws.assign(words.begin() + 3, words.end());
  random.set_position(std::move(position));
  random.seeding()->count(words[2]);
}

// Returns a number that changes in this thread with each manual_seed(), which makes another Seeding.
std::uint64_t seeding_number() {
  thread_local std::weak_ptr<Seeding> last;
  thread_local std::uint64_t number = 0;
  const std::shared_ptr<Seeding> now = current_seeding();
  if (last.lock() != now) {
    last = now;
    ++number;
  }
  return number;
}

void add_orders(py::module_& m) {
  m.def("default_seed", [] { return default_seed("data loader"); });
  m.def("seeding_number", seeding_number);
  m.def("random_state", random_state, released());
  m.def("set_random_state", set_random_state, "words"_a, released());
  m.def(
      "random_order",
      [](std::int64_t size, Seed seed, std::int64_t epoch) { return RandomSampler(size, seed).order(epoch); },
      released());
  m.def(
      "weighted_order",
      [](std::vector<double> weights, std::int64_t samples, bool replacement, Seed seed, std::int64_t epoch) {
        return WeightedRandomSampler(std::move(weights), samples, {.replacement = replacement, .seed = seed})
            .order(epoch);
      },
      released());
  m.def(
      "random_split_indices",
      [](std::shared_ptr<Dataset> data, const std::vector<double>& lengths, Seed seed) {
        std::vector<std::vector<std::int64_t>> all;
        for (const Subset& part : random_split(std::shared_ptr<const Dataset>(std::move(data)), lengths, seed))
          all.push_back(part.indices());
        return all;
      },
      released());
}

}  // namespace

std::shared_ptr<const Dataset> as_dataset(py::handle object) {
  const py::module_ package = py::module_::import("lockstep.utils.data");
  const py::object core = package.attr("_core_of")(object);
  if (!core.is_none()) return core.cast<std::shared_ptr<Dataset>>();
  if (py::isinstance(object, package.attr("DataLoader")))
    throw py::type_error("dataset: found a DataLoader, expected its data set: batches have options of their own here");
  const bool has_items = py::hasattr(object, "__len__") && py::hasattr(object, "__getitem__");
  if (!has_items || py::isinstance(object, package.attr("IterableDataset")))
    throw py::type_error(fmt::format("dataset: found {}, expected an object with __len__ and __getitem__",
                                     py::str(py::type::of(object)).cast<std::string>()));
  return std::make_shared<PythonDataset>(py::reinterpret_borrow<py::object>(object));
}

void stop_examples(const Dataset* dataset, bool stop) {
  if (const auto* made_in_python = dynamic_cast<const PythonDataset*>(dataset)) made_in_python->stopped = stop;
}

void add_data(py::module_& package) {
  py::module_ m = package.def_submodule("internal");
  add_datasets(m);
  add_orders(m);
  add_transforms(m);
  m.def(
      "stack_parts", [](const std::vector<Tensor>& tensors) { return stack_parts(tensors); }, released(),
      "Host tensors of one shape and type, stacked along a new axis 0.");

  py::class_<WorkerScope> scope(m, "WorkerScope", "In its scope, the thread must not draw from the random state.");
  scope.def(py::init());
  scope.def("__enter__", [](WorkerScope& s) { s.scope.emplace("a DataLoader's worker"); });
  scope.def("__exit__", [](WorkerScope& s, const py::args&) { s.scope.reset(); });

  py::class_<BatchLoop> loop(m, "BatchLoop", "One loop over batches that C++ threads make.");
  loop.def(py::init([](py::handle data, std::vector<std::int64_t> order, std::int64_t batch_size, bool drop_last,
                       Seed seed, std::int64_t epoch, int workers, int prefetch, std::optional<Device> pin_for,
                       std::shared_ptr<BatchSplitter> splitter) {
             DataLoaderOptions options{.batch_size = batch_size,
                                       .seed = seed,
                                       .drop_last = drop_last,
                                       .pin_for = pin_for.value_or(kHost),
                                       .workers = workers,
                                       .prefetch = workers > 0 ? prefetch : DataLoaderOptions().prefetch};
             return std::make_unique<BatchLoop>(as_dataset(data), std::move(order), std::move(options), epoch,
                                                std::move(splitter));
           }),
           "dataset"_a, "order"_a, "batch_size"_a, "drop_last"_a, "seed"_a, "epoch"_a, "workers"_a, "prefetch"_a,
           "pin_for"_a = py::none(), "splitter"_a = py::none());
  loop.def("next", &BatchLoop::next, released(), "The parts of the next batch; None at the end. Waits.");
}

}  // namespace lockstep::python
