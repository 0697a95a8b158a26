// Several processes: a job, and the collectives of lockstep.distributed.
#include <chrono>
#include <memory>
#include <utility>

#include "bindings.h"
#include "lockstep/autograd/tensor_impl.h"
#include "lockstep/launch/child_process.h"
#include "lockstep/net/secret.h"
#include "lockstep/net/tcp_store_server.h"

namespace lockstep::python {
namespace {

std::chrono::milliseconds milliseconds(double seconds) {
  return std::chrono::milliseconds(static_cast<std::int64_t>(seconds * 1000));
}

std::unique_ptr<Job> make_job(const std::string& backend, int rank, int world_size, double timeout,
                              double progress_timeout, const std::string& devices, int count) {
  JobOptions options;
  options.group = {.backend = backend,
                   .rank = rank,
                   .world_size = world_size,
                   .timeout = milliseconds(timeout),
                   .progress_timeout = milliseconds(progress_timeout)};
  options.devices = devices;
  if (count > 0) options.runtime.devices = count;
  return std::make_unique<Job>(std::move(options));
}

// A copy in host memory that a collective reads and writes.
struct HostCopy {
  explicit HostCopy(const Tensor& x) : tensor(Tensor::host(x.shape(), x.dtype())) {
    const NoGradGuard no_grad;
    tensor.copy_from(x);
    tensor.wait();
  }
  CommBuffer buffer() const { return {tensor->view().data, static_cast<std::size_t>(tensor.numel()), tensor.dtype()}; }
  void write_to(const Tensor& x) const {
    const NoGradGuard no_grad;
    x.copy_from(tensor);
    x.wait();
  }
  Tensor tensor;
};

const CollectiveOptions kWait{.wait = true};

void all_reduce(Job& job, const Tensor& x, const std::string& op) {
  check(op == "sum" || op == "min" || op == "max", "all_reduce: op {}, expected sum, min, or max", op);
  const HostCopy copy(x);
  job.group()
      ->all_reduce(copy.buffer(),
                   op == "sum"   ? ReduceOp::sum
                   : op == "min" ? ReduceOp::min
                                 : ReduceOp::max,
                   kWait)
      .wait();
  copy.write_to(x);
}

void broadcast(Job& job, const Tensor& x, int root) {
  const HostCopy copy(x);
  job.group()->broadcast(copy.buffer(), root, kWait).wait();
  if (job.rank() != root) copy.write_to(x);
}

Tensor all_gather(Job& job, const Tensor& x) {
  const HostCopy copy(x);
  std::vector<std::int64_t> all{job.world_size()};
  for (const std::int64_t extent : x.shape()) all.push_back(extent);
  const HostCopy out(Tensor::host(Shape(std::span<const std::int64_t>(all)), x.dtype()));
  job.group()->all_gather(copy.buffer(), out.buffer(), kWait).wait();
  return out.tensor;
}

}  // namespace

void add_distributed(py::module_& package) {
  py::module_ m = package.def_submodule("internal");
  py::class_<Job> job(m, "Job");
  job.def(py::init(&make_job), "backend"_a, "rank"_a, "world_size"_a, "timeout"_a, "progress_timeout"_a, "devices"_a,
          "count"_a, released());
  job.def("close", &Job::close, released());
  job.def(
      "abort", [](Job& j, const std::string& reason) { j.communicator()->abort(reason); }, released());
  job.def_property_readonly("rank", &Job::rank);
  job.def_property_readonly("world_size", &Job::world_size);
  job.def_property_readonly("backend", [](const Job& j) { return std::string(j.communicator()->backend_name()); });
  job.def_property_readonly("devices", &Job::devices);
  job.def("all_reduce", &all_reduce, released());
  job.def("broadcast", &broadcast, released());
  job.def("all_gather", &all_gather, released());
  job.def(
      "barrier", [](Job& j) { j.group()->barrier(kWait).wait(); }, released());
  job.def(
      "send",
      [](Job& j, const Tensor& x, int destination, int tag) {
        const HostCopy copy(x);
        j.group()->send(copy.buffer(), destination, tag).wait();
      },
      released());
  job.def(
      "receive",
      [](Job& j, const Tensor& x, int source, int tag) {
        const HostCopy copy(x);
        j.group()->receive(copy.buffer(), source, tag).wait();
        copy.write_to(x);
      },
      released());

  m.def("launched_rank", []() -> py::object {
    const auto found = read_launched_rank();
    if (!found) return py::none();
    return py::make_tuple(found->rank, found->world_size, found->local_rank);
  });
  package.def("weights_sha256", &weights_sha256, "module"_a, released(),
        "SHA-256 over all parameters and floating-point buffers, by name. Waits.");

  // For multiprocessing.spawn().
  py::class_<TcpStoreServer>(m, "StoreServer")
      .def(py::init([](const std::string& secret) {
             return std::make_unique<TcpStoreServer>(TcpStoreServerOptions{.secret = secret});
           }),
           "secret"_a, released())
      .def_property_readonly("port", &TcpStoreServer::port);
  m.def("make_secret", [] { return read_secret().empty() ? make_secret() : read_secret(); });
  m.def("die_with_parent", &die_with_parent, "parent"_a);
}

}  // namespace lockstep::python
