#include "lockstep/parallel/distributed_data_parallel.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <numeric>

#include "lockstep/autograd/lift.h"
#include "lockstep/autograd/no_grad.h"
#include "lockstep/autograd/node.h"
#include "lockstep/autograd/placement.h"
#include "lockstep/autograd/shards.h"
#include "lockstep/autograd/tensor.h"
#include "lockstep/autograd/tensor_impl.h"
#include "lockstep/base/version.h"
#include "lockstep/nn/batch_norm.h"
#include "lockstep/nn/parameter_change.h"
#include "lockstep/parallel/balance.h"
#include "lockstep/parallel/bucket_reducer.h"
#include "lockstep/parallel/split.h"
#include "lockstep/tensor/storage.h"

namespace lockstep {
namespace {

// Everything that ranks must agree on, one item per line.
std::string description(const Module& module, int shards, const std::string& recipe) {
  std::string text;
  auto add = [&](std::string_view kind, const std::vector<std::pair<std::string, Parameter>>& all) {
    for (const auto& [name, p] : all) {
      text += fmt::format("{}{} {} {} {}\n", kind == "parameter" && !p.trainable() ? "frozen " : "", kind, name,
                          p.shape().str(), lockstep::name(p.dtype()));
    }
  };
  add("parameter", module.named_parameters());
  add("buffer", module.named_buffers());
  // Groups that meet through a store have compared versions there; MPI's groups have no store.
  text += fmt::format("Lockstep {} kernel revision {}\n", LOCKSTEP_VERSION, LOCKSTEP_KERNEL_REVISION);
  return text + fmt::format("shards {}\n", shards) + recipe;
}

// "" or the first line that differs.
std::string first_difference(std::string_view mine, std::string_view first) {
  while (!mine.empty() || !first.empty()) {
    auto line = [](std::string_view& text) {
      std::string_view head = text.substr(0, text.find('\n'));
      text.remove_prefix(std::min(text.size(), head.size() + 1));
      return head;
    };
    std::string_view a = line(mine), b = line(first);
    if (a == b) continue;
    auto quoted = [](std::string_view s) { return s.empty() ? std::string("nothing") : "'" + std::string(s) + "'"; };
    return fmt::format("has {} where rank 0 has {}: all ranks need the same model and recipe", quoted(a), quoted(b));
  }
  return "";
}

// Collective: compares what the ranks must agree on. Their devices may differ.
JobShares agreed_shares(Module& module, const std::vector<Device>& devices, Communicator* communicator,
                        const DistributedOptions& options) {
  check(communicator != nullptr && !devices.empty(), "distributed data parallel: no communicator or no devices");
  module.expect_on(devices, "distributed data parallel");
  std::vector<int> devices_of_rank;
  for (const std::int64_t count : communicator->gather_on_host(std::ssize(devices), "number of devices")) {
    devices_of_rank.push_back(static_cast<int>(count));
  }
  const auto& [wanted, balance] = options.split;
  const std::vector<double>& weights = balance.fixed_weights("distributed data parallel");
  check(wanted >= 0, "distributed data parallel: {} shards, expected at least one for each rank", wanted);
  const int shards = wanted > 0 ? wanted : std::accumulate(devices_of_rank.begin(), devices_of_rank.end(), 0);
  const std::string mine = description(
      module, shards,
      fmt::format("balance {}\ngradients {}\nbuckets of {} and {} bytes\n{}", fmt::join(weights, ","),
                  name(options.gradients), options.buckets.first_bytes, options.buckets.bytes, options.recipe));
  const std::string first = communicator->broadcast_on_host(mine, "description of the model");
  communicator->agree(first_difference(mine, first), "comparison of models");
  return JobShares(shards, devices_of_rank, weights);
}

}  // namespace

NoSyncGuard::NoSyncGuard(std::shared_ptr<BucketReducer> reducer) : reducer_(std::move(reducer)) { reducer_->hold(); }
NoSyncGuard::~NoSyncGuard() { reducer_->release(); }

DistributedModel::DistributedModel(Module& module, const std::vector<Device>& devices,
                                   const std::shared_ptr<Communicator>& communicator, const DistributedOptions& options)
    : BatchSplitter(devices, agreed_shares(module, devices, communicator.get(), options), communicator),
      module_(module), reducer_(std::make_shared<BucketReducer>(communicator, module.parameters(), shares(),
                                                                options.gradients, options.buckets)) {
  broadcast_values();
  reducer_->attach();
}

DistributedModel::~DistributedModel() { reducer_->detach(); }

void DistributedModel::broadcast_values() {
  auto all = module_.named_parameters();
  auto buffers = module_.named_buffers();
  all.insert(all.end(), buffers.begin(), buffers.end());
  broadcast(all);
}

void DistributedModel::broadcast(std::vector<std::pair<std::string, Parameter>>& all) {
  try {
    const SameRunGuard same_run(module_);
    for (auto& [name, p] : all) {
      Tensor value = p.host_data();
      communicator().broadcast_on_host({value->view().data, static_cast<std::size_t>(value.numel()), value.dtype()},
                                       name);
      p.set_data(value);
    }
  } catch (const std::exception& error) {
    // Tell the other ranks here: in the constructor, no DistributedDataParallel exists yet that could do so.
    communicator().abort(error.what());
    throw;
  }
}

bool DistributedModel::takes_own(std::span<const Tensor> inputs) const {
  const auto rows = [](const Tensor& x) { return x.defined() && x->kind != Kind::cut && !x->at; };
  return (grad_enabled() || module_.training()) && inputs[0].defined() && std::ranges::all_of(inputs, rows);
}

std::vector<std::pair<std::string, Parameter>> DistributedModel::own_buffers() {
  std::vector<std::pair<std::string, Parameter>> buffers;
  for (const auto& [name, m] : module_.named_modules()) {
    // Batch norm's statistics already cover all ranks.
    if (dynamic_cast<const BatchNorm*>(m)) continue;
    for (auto& [own, buffer] : m->named_buffers(false)) {
      buffers.emplace_back(name.empty() ? own : name + "." + own, buffer);
    }
  }
  return buffers;
}

std::vector<Tensor> DistributedModel::call_own(
    std::span<const Tensor> inputs, const std::function<std::vector<Tensor>(std::span<const Tensor>)>& model) {
  std::vector<Tensor> passed(inputs.begin(), inputs.end()), rows;
  std::vector<std::size_t> places;  // of the rows
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    const Tensor& x = inputs[i];
    if (!x.defined() || x.dim() == 0 || (!rows.empty() && x.size(0) != rows[0].size(0))) continue;
    places.push_back(i);
    rows.push_back(x->kind == Kind::whole ? x : x.to(devices()[0]));
  }
  const std::vector<Tensor> cut = split_own(rows);
  for (Tensor& x : passed) x = replicate(x, cut[0]->at);
  for (std::size_t i = 0; i < cut.size(); ++i) passed[places[i]] = cut[i];

  // Returns the address of a buffer's memory and the number of writes to it.
  const auto state = [](const Parameter& buffer) {
    const Storage& memory = buffer.tensor()->storage()->owner();
    return std::pair<const void*, std::uint64_t>(&memory, memory.written());
  };
  const auto before = own_buffers();
  std::vector<std::pair<const void*, std::uint64_t>> states;
  for (const auto& [name, buffer] : before) states.push_back(state(buffer));
  std::vector<Tensor> results = model(passed);
  if (!before.empty() && !communicator().alone()) {
    auto after = own_buffers();
    bool changed = after.size() != before.size();
    for (std::size_t i = 0; !changed && i < after.size(); ++i) changed = state(after[i].second) != states[i];
    const auto all = communicator().gather_on_host(changed ? 1 : 0, "change of buffers");
    if (std::ranges::count(all, 0) < std::ssize(all)) broadcast(after);
  }
  for (Tensor& y : results) {
    if (y.defined() && y->at) y = y->kind == Kind::whole ? y : gather(y, devices()[0]);
  }
  return results;
}

void DistributedModel::set_shares(JobShares shares) {
  check_shares(shares);
  reducer_->set_shares(shares);
  BatchSplitter::set_shares(std::move(shares));
}

DataLoader::Iterator DistributedModel::begin_loop(DataLoader& loader) {
  DataLoader::Iterator loop = loader.begin([this](std::int64_t samples) { return rows_of(samples); }, devices()[0]);
  const auto orders =
      communicator().gather_on_host(static_cast<std::int64_t>(loop.fingerprint()), "order of the examples");
  const auto other = std::ranges::find_if(orders, [&](std::int64_t order) { return order != orders[0]; });
  check(other == orders.end(),
        "batches: rank {} has different batches from rank 0, expected a loader of the whole data set with "
        "the same options on all "
        "ranks, and no DistributedSampler",
        other - orders.begin());
  return loop;
}

void settle_shapes(Module& module, const Tensor& example, Device device) {
  NoGradGuard no_grad;
  EvalGuard mode(module);
  module.forward(example.to(device));
}

}  // namespace lockstep
