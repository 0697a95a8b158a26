// Several devices: batches cut into shards, a wrapper of a model that keeps its names, and DistributedDataParallel.
#include <memory>
#include <utility>

#include "bindings.h"
#include "callbacks.h"
#include "lockstep/autograd/tensor_impl.h"
#include "module_class.h"

namespace lockstep::python {
namespace {

// A module with the parameters, names, and mode of another module: DataParallel, DistributedDataParallel. Its forward()
// is in Python.
class ModelWrapper : public Module {
 public:
  explicit ModelWrapper(std::shared_ptr<Module> module) : module_(std::move(module)) { pass_on(*module_); }
  // The wrapper moves its inputs itself.
  Tensor placed(const Tensor& x) const override { return x; }

 private:
  std::shared_ptr<Module> module_;
};

SplitOptions split_options(int shards, std::vector<double> weights) {
  return {.shards = shards, .balance = {.weights = std::move(weights)}};
}

// A NoSync keeps its DistributedModel alive while it holds gradients back.
using Distributed = std::shared_ptr<DistributedModel>;
struct NoSync {
  Distributed model;
  std::unique_ptr<NoSyncGuard> guard;
};

// Wraps a function of Python from tensors to tensors. `f` must outlive the result.
auto tensor_function(const char* what, const py::function& f) {
  return [what, &f](std::span<const Tensor> inputs) {
    const WithLock lock;
    return returned_as<std::vector<Tensor>>(what, f(std::vector<Tensor>(inputs.begin(), inputs.end())));
  };
}

}  // namespace

void add_parallel(py::module_& package) {
  py::module_ m = package.def_submodule("internal");
  package.def(
      "default_shards", &default_shards, "batch_size"_a,
      "The number of shards that `lockstep train` cuts such a batch into: at most 8, of at least 16 samples each.");
  m.def(
      "split_and_load",
      [](const Tensor& x, const std::vector<Device>& devices, int shards, std::vector<double> weights) {
        return split_and_load(x, devices, split_options(shards, std::move(weights)));
      },
      "x"_a, "devices"_a, "shards"_a = 0, "weights"_a = std::vector<double>{}, released(),
      "Cuts axis 0 into shards of ceil(n / shards) rows, on these devices: one tensor, cut over the devices.");
  m.def(
      "gather", [](const Tensor& x, std::optional<Device> device) { return device ? gather(x, *device) : gather(x); },
      "x"_a, "device"_a = py::none(), released(),
      "All rows of a cut tensor, of all ranks, as one whole tensor. Collective. Differentiable.");
  // The overload of torch.gather(x, dim, index) for a cut batch.
  package.def(
      "gather", [](const Tensor& x) { return gather(x); }, "input"_a, released(),
      "All rows of a batch that is cut over devices, as one whole tensor. Collective. Differentiable.");
  m.def(
      "per_shard",
      [](const py::function& f, const std::vector<Tensor>& inputs) {
        const auto call = tensor_function("per_shard", f);
        const WithoutLock describing;
        return per_shard(call, inputs);
      },
      "f"_a, "inputs"_a,
      "Calls f once for each shard, with a list of that shard's rows of each input; f returns a list of tensors.");
  m.def("is_cut", [](const Tensor& x) { return x->kind == Kind::cut; });

  m.def(
      "place_on",
      [](Module& module, const std::vector<Device>& devices) {
        if (module.devices() != devices) module.to(devices);
      },
      "module"_a, "devices"_a, released(), "Moves a model to these devices: a replica on each.");

  // Functions with Gluon's names.
  m.def(
      "on_device", [](const Tensor& x, Device device) { return x.to(device); }, released());
  m.def(
      "initialize",
      [](Module& module, const std::string& kind, const std::map<std::string, double>& values,
         const std::vector<Device>& devices, bool force_reinit) {
        Initializer initializer;
        if (kind == "normal") initializer = Normal(values.at("std"));
        if (kind == "uniform") initializer = Uniform(values.at("scale"));
        if (kind == "xavier") initializer = Xavier{};
        check(initializer != nullptr, "initialize: {}, expected normal, uniform, or xavier", kind);
        const InitializeOptions options{.force_reinit = force_reinit};
        devices.empty() ? module.initialize(initializer, options) : module.initialize(initializer, devices, options);
      },
      released());
  m.def(
      "parameter_on",
      [](const LiveTensor& p, std::optional<Device> device) { return p.parameter.data(device.value_or(kHost)); },
      released());
  m.def("parameter_devices", [](const LiveTensor& p) { return p.parameter.devices(); });
  m.def(
      "scale_gradients",
      [](Optimizer& optimizer, double factor) {
        optimizer.map_gradients([factor](const Tensor& g, const Parameter&) { return g * factor; });
      },
      released());

  ModuleClass<ModelWrapper> wrapper(m, "ModelWrapper");
  def_constructor(
      wrapper, [](const py::object& model) { return std::make_unique<ModelWrapper>(held_module(model)); }, "module"_a);

  py::class_<BatchSplitter, std::shared_ptr<BatchSplitter>> splitter(m, "BatchSplitter");
  splitter.def(py::init([](const Module& model, int shards, std::vector<double> weights, std::int64_t batch_size) {
                 return splitter_for(model, split_options(shards, std::move(weights)), batch_size);
               }),
               "model"_a, "shards"_a, "weights"_a, "batch_size"_a, released());
  splitter.def("rows_of", &BatchSplitter::rows_of, "samples"_a);
  splitter.def(
      "split",
      [](BatchSplitter& s, const std::vector<Tensor>& rows, std::int64_t samples) { return s.split(rows, samples); },
      "rows"_a, "samples"_a, released());
  splitter.def_property_readonly("shards", &BatchSplitter::shards);
  splitter.def_property_readonly("devices", &BatchSplitter::devices);
  splitter.def(
      "gather_on_host",
      [](BatchSplitter& s, std::int64_t mine, const std::string& what) {
        return s.communicator().gather_on_host(mine, what);
      },
      released());

  py::class_<NoSync> no_sync(m, "NoSync");
  no_sync.def("__enter__", [](NoSync& s) { s.guard = s.model->no_sync(); });
  no_sync.def("__exit__", [](NoSync& s, const py::args&) { s.guard.reset(); });

  py::class_<DistributedModel, BatchSplitter, Distributed> ddp(m, "DistributedModel");
  ddp.def(py::init([](Module& model, int shards, std::vector<double> weights, DType gradients, std::int64_t bucket,
                      const std::string& recipe) {
            const std::vector<Device> devices = model.devices();
            DistributedOptions options{.split = split_options(shards, std::move(weights)),
                                       .gradients = gradients,
                                       .buckets = {.bytes = bucket},
                                       .recipe = recipe};
            options.buckets.first_bytes = std::min(options.buckets.first_bytes, bucket);
            return std::make_shared<DistributedModel>(model, devices, job_of(devices, "distributed data parallel"),
                                                      options);
          }),
          "model"_a, "shards"_a, "weights"_a, "gradients"_a, "bucket_bytes"_a, "recipe"_a, released(),
          py::keep_alive<1, 2>());
  ddp.def(
      "call_own",
      [](const Distributed& model, const py::function& f, const std::vector<Tensor>& inputs) {
        const auto call = tensor_function("forward", f);
        const WithoutLock describing;
        return model->call_own(inputs, call);
      },
      "f"_a, "inputs"_a,
      "Calls f with this rank's rows of the inputs as batches, and returns its tensors in one piece.");
  ddp.def("no_sync", [](const Distributed& model) { return NoSync{model, nullptr}; });
}

}  // namespace lockstep::python
