// Several processes: a job, and the collectives of lockstep.distributed.
#include <chrono>
#include <memory>
#include <utility>

#include "bindings.h"
#include "interruptible.h"
#include "lockstep/autograd/tensor_impl.h"
#include "lockstep/launch/child_process.h"
#include "lockstep/net/secret.h"
#include "lockstep/net/tcp_store_server.h"
#include "views.h"

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

// Returns a copy in host memory that a collective reads and writes. Call it without the interpreter lock.
Tensor host_copy(const Tensor& x) {
  const NoGradGuard no_grad;
  Tensor copy = Tensor::host(x.shape(), x.dtype());
  copy.copy_from(x);
  copy.wait();
  return copy;
}

// Writes the copy to x. `self` is x's object in Python: its base, if it is a view, sees the write, too. Needs the lock.
void write_to(py::handle self, const Tensor& x, const Tensor& copy) {
  {
    const WithoutLock writing;
    const NoGradGuard no_grad;
    x.copy_from(copy);
    x.wait();
  }
  after_write(self);
}

CommBuffer buffer(const Tensor& x) { return {x->view().data, static_cast<std::size_t>(x.numel()), x.dtype()}; }

// Waits; if a signal ends the wait, the operation keeps the memory. Call it with the interpreter lock.
void finish(const Work& work, std::vector<Tensor> held) {
  interruptible([work, held = std::move(held)] { work.wait(); });
}

ReduceOp reduce_op(const std::string& op) {
  if (op == "min") return ReduceOp::min;
  if (op == "max") return ReduceOp::max;
  check(op == "sum", "all_reduce: op {}, expected sum, avg, min, or max", op);
  return ReduceOp::sum;
}

// Copies the tensor, runs start(copy), waits for it, and writes the copy back if `writes`.
template <typename Start>
void on_copy(py::handle self, bool writes, const Start& start) {
  const Tensor x = self.cast<Tensor>();
  Tensor copy;
  Work work;
  {
    const WithoutLock copying;
    copy = host_copy(x);
    work = start(copy);
  }
  finish(work, {copy});
  if (writes) write_to(self, x, copy);
}

Tensor all_gather(Job& job, const Tensor& x) {
  std::vector<std::int64_t> shape{job.world_size()};
  for (const std::int64_t extent : x.shape()) shape.push_back(extent);
  const Tensor all = Tensor::host(Shape(std::span<const std::int64_t>(shape)), x.dtype());
  Tensor copy;
  Work work;
  {
    const WithoutLock copying;
    copy = host_copy(x);
    work = job.group()->all_gather(buffer(copy), buffer(all));
  }
  finish(work, {copy, all});
  return all;
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
  job.def("all_reduce", [](Job& j, const py::object& x, const std::string& op) {
    const ReduceOp reduce = reduce_op(op);
    on_copy(x, true, [&](const Tensor& copy) { return j.group()->all_reduce(buffer(copy), reduce); });
  });
  job.def("broadcast", [](Job& j, const py::object& x, int root) {
    on_copy(x, j.rank() != root, [&](const Tensor& copy) { return j.group()->broadcast(buffer(copy), root); });
  });
  job.def("all_gather", &all_gather);
  job.def("barrier", [](Job& j) { finish(j.group()->barrier(), {}); });
  job.def("send", [](Job& j, const py::object& x, int destination, int tag) {
    on_copy(x, false, [&](const Tensor& copy) { return j.group()->send(buffer(copy), destination, tag); });
  });
  job.def("receive", [](Job& j, const py::object& x, int source, int tag) {
    on_copy(x, true, [&](const Tensor& copy) { return j.group()->receive(buffer(copy), source, tag); });
  });

  package.def("weights_sha256", &weights_sha256, "module"_a, released(),
              "SHA-256 over all parameters and floating-point buffers, by name. Waits.");

  // Used by multiprocessing.spawn().
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
