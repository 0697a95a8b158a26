#include "lockstep/parallel/bucket_reducer.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <iterator>
#include <numeric>
#include <tuple>

#include "lockstep/autograd/parameter_gradient.h"
#include "lockstep/backend/backend.h"
#include "lockstep/comm/tree_sum.h"
#include "lockstep/engine/engine.h"
#include "lockstep/ops/copy.h"
#include "lockstep/ops/elementwise.h"
#include "lockstep/ops/launch.h"
#include "lockstep/parallel/summing_gpu.h"
#include "lockstep/runtime/device_state.h"
#include "lockstep/runtime/random_state.h"
#include "lockstep/tensor/storage.h"

namespace lockstep {
namespace {

// Returns the largest complete subtrees that make up shards [first, last), each as its first shard and its size.
std::vector<std::pair<std::size_t, std::size_t>> complete_subtrees(std::size_t first, std::size_t last) {
  std::vector<std::pair<std::size_t, std::size_t>> subtrees;
  while (first < last) {
    std::size_t size = first == 0 ? std::bit_floor(last) : first & -first;
    while (first + size > last) size /= 2;
    subtrees.emplace_back(first, size);
    first += size;
  }
  return subtrees;
}

// Returns an array in memory that `owner` owns.
Array wrap(const void* data, const Shape& shape, DType dtype, Device device, std::shared_ptr<void> owner) {
  View view{const_cast<void*>(data), dtype, Layout::plain, shape};
  std::shared_ptr<Engine> engine = state_of(device, "reducer").engine;
  auto* storage = new Storage{view.data, view.bytes(), device, engine, engine->make_resource()};
  // An allocator's block may be freed while tasks use it, because its next user waits for them. This memory has no next
  // user, so the host waits before it is freed.
  return Array(std::shared_ptr<Storage>(storage,
                                        [owner = std::move(owner)](Storage* s) {
                                          s->engine->wait_unused(s->resource);
                                          delete s;
                                        }),
               view);
}

// Segments begin at multiples of this many elements in GPU memory, so that whole vectors can be moved.
constexpr std::size_t kGpuStep = 128;

// Sums a subtree's arrays of one segment into that segment of a contribution. A single array may be that segment
// itself: then nothing is left to do.
void sum_subtree(Backend& backend, KernelContext& context, const std::vector<View>& subtree, const View& out) {
  if (subtree.size() == 1 && subtree[0].data == out.data) return;
  if (out.dtype == DType::f32) return backend.run(context, kernels::TreeSum{subtree, out});
  std::vector<const void*> leaves;
  for (const View& leaf : subtree) leaves.push_back(leaf.data);
  rounded_tree_sum(leaves, DType::bf16, out.data, static_cast<std::size_t>(out.numel()));
}

// The bucket index of a parameter that is in no bucket.
constexpr auto kNone = static_cast<std::size_t>(-1);

}  // namespace

BucketReducer::BucketReducer(std::shared_ptr<Communicator> communicator, std::vector<Parameter> parameters,
                             const JobShares& shares, DType dtype, BucketOptions options)
    : communicator_(std::move(communicator)), group_(communicator_->make_group()), parameters_(std::move(parameters)),
      dtype_(dtype), options_(options), summed_(parameters_.size()) {
  int world = communicator_->world_size();
  check(shares.shards() >= world, "distributed data parallel: {} shards for {} ranks, expected at least one each",
        shares.shards(), world);
  check(options.bytes > 0 && options.first_bytes > 0, "reducer: buckets of {} and {} bytes, expected at least 1",
        options.first_bytes, options.bytes);
  place_shards(shares);
  // Backward finds the last layers' gradients first.
  order_.resize(parameters_.size());
  std::iota(order_.rbegin(), order_.rend(), 0);
  make_buckets(wanted());
}

BucketReducer::~BucketReducer() = default;

void BucketReducer::place_shards(const JobShares& shares) {
  positions_.clear();
  for (int r = 0; r < shares.ranks(); ++r) {
    auto [first, last] = shares.of_rank(r);
    auto subtrees = complete_subtrees(static_cast<std::size_t>(first), static_cast<std::size_t>(last));
    positions_.emplace_back();
    for (auto& [begin, size] : subtrees) positions_.back().push_back(static_cast<int>(begin));
    if (r == communicator_->rank()) std::tie(subtrees_, first_shard_) = std::tuple(std::move(subtrees), first);
  }
}

void BucketReducer::set_shares(const JobShares& shares) {
  check(shares.ranks() == communicator_->world_size(), "distributed data parallel: shares of {} ranks, expected {}",
        shares.ranks(), communicator_->world_size());
  for (int r = 0; r < shares.ranks(); ++r) {
    const auto [first, last] = shares.of_rank(r);
    check(first < last, "distributed data parallel: rank {} has no shard, expected at least one", r);
  }
  const auto waiting =
      std::ranges::find_if(parameters_, [](const Parameter& p) { return p.gradient_state().present(); });
  check(waiting == parameters_.end() && std::ranges::all_of(summed_, &Passes::empty),
        "distributed data parallel: shares change while gradients of an earlier backward() are still waiting: call "
        "step() or zero_grad() first");
  wait_for_buckets();
  place_shards(shares);
  make_buckets(wanted());
}

// Tasks of earlier rounds use the group. If one of them failed, this throws: other ranks still wait in that task's
// reduction, and would report the next exchange as a mismatch.
void BucketReducer::wait_for_buckets() const {
  for (const auto& bucket : buckets_) {
    if (communicator_->world_size() > 1) {
      bucket->present.wait();
    } else {
      bucket->present.storage()->engine->wait_unused(bucket->present.resource());
    }
  }
}

// Returns the parameters whose gradients travel, in the order of backward.
std::vector<std::size_t> BucketReducer::wanted() const {
  const bool optimized = std::ranges::any_of(parameters_, &Parameter::optimized);
  std::vector<std::size_t> wanted;
  std::ranges::copy_if(order_, std::back_inserter(wanted), [&](std::size_t i) {
    return parameters_[i].trainable() && (parameters_[i].optimized() || !optimized);
  });
  return wanted;
}

bool BucketReducer::in_bucket(std::size_t index) const { return places_[index].first != kNone; }

void BucketReducer::make_buckets(const std::vector<std::size_t>& order) {
  for (std::size_t index : order) {
    const Parameter& p = parameters_[index];
    check(p.initialized() && p.shape_known(),
          "distributed data parallel: the shape {} of parameter {} is not known yet "
          "(0: any): pass an example through the model first, see settle_shapes()",
          p.shape(), p.name());
    check(p.dtype() == DType::f32, "distributed data parallel: parameter {} is {}, expected f32", p.name(),
          name(p.dtype()));
  }
  buckets_.clear();
  places_.assign(parameters_.size(), {kNone, 0});
  std::int64_t bytes = 0;
  for (std::size_t index : order) {
    auto size = parameters_[index].shape().numel();
    std::int64_t limit = buckets_.size() <= 1 ? options_.first_bytes : options_.bytes;
    if (buckets_.empty() || bytes + size * 4 > limit) {
      buckets_.push_back(std::make_unique<Bucket>());
      bytes = 0;
    }
    bytes += size * 4;
    Bucket& bucket = *buckets_.back();
    places_[index] = {buckets_.size() - 1, bucket.parameters.size()};
    bucket.sizes.push_back(static_cast<std::size_t>(size));
    bucket.parameters.push_back(index);
  }
  const bool on_gpu = communicator_->summing_gpu() != nullptr;
  Device device = summing_device();
  for (auto& bucket : buckets_) {
    std::vector<std::size_t> segments;
    std::size_t offset = 0;
    for (std::size_t size : bucket->sizes) {
      bucket->offsets.push_back(offset);
      segments.push_back(on_gpu ? (size + kGpuStep - 1) / kGpuStep * kGpuStep : size);
      offset += segments.back();
    }
    bucket->reducer =
        group_->make_tree_reducer({segments, positions_, dtype_}, CommChannel::bulk, communicator_->summing_gpu());
    std::span<const float> result = bucket->reducer->result();
    bucket->sum = wrap(result.data(), {static_cast<std::int64_t>(result.size())}, DType::f32, device, bucket->reducer);
    bucket->destinations.resize(subtrees_.size());
    for (std::size_t k = 0; k < subtrees_.size(); ++k) {
      // On the host, tasks sum and round directly into the contribution.
      if (!on_gpu && (subtrees_[k].second > 1 || dtype_ != DType::f32)) continue;
      auto* own = static_cast<std::byte*>(bucket->reducer->contribution(k).data);
      for (std::size_t i = 0; i < bucket->parameters.size(); ++i) {
        bucket->destinations[k].push_back(wrap(own + bucket->offsets[i] * item_size(dtype_),
                                               parameters_[bucket->parameters[i]].shape(), dtype_, device,
                                               bucket->reducer));
      }
    }
    bucket->in_total.resize(bucket->sizes.size());
    bucket->flags->latest.resize(bucket->sizes.size());
    bucket->flags->total.resize(bucket->sizes.size());
    bucket->present = ops::empty({static_cast<std::int64_t>(bucket->sizes.size())}, DType::u8, device);
  }
}

Device BucketReducer::summing_device() const {
  return communicator_->summing_gpu() ? communicator_->summing_gpu()->device() : communicator_->device();
}

void BucketReducer::attach() {
  for (const Parameter& p : parameters_) {
    check(p.gradient_state().reducer() == nullptr,
          "parameter {}: another DistributedDataParallel sums its gradients; "
          "destroy that first",
          p.name());
  }
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    parameters_[i].gradient_state().set_dtype(dtype_);
    parameters_[i].gradient_state().set_reducer(shared_from_this(), i);
  }
}

void BucketReducer::detach() {
  for (const Parameter& p : parameters_) p.gradient_state().remove_reducer(*this);
}

// If ranks have losses of their own, each adds such contributions; those of one loss are equal, so a single rank does.
int BucketReducer::once_shard(const BackwardPass& pass) const {
  const bool batch = pass.at && pass.at->joins_ranks();
  if (batch ? pass.at->own_loss() : own_losses_) return first_shard_;
  const int shard = batch ? pass.at->lowest_shard() : 0;
  return (batch ? pass.at->slot_of(shard) != nullptr : first_shard_ == 0) ? shard : -1;
}

void BucketReducer::end_backward(const BackwardPass& pass) {
  if (pass.at && pass.at->joins_ranks()) {
    const bool own = pass.at->own_loss();
    check(
        !waiting_ || own == own_losses_,
        "distributed data parallel: gradients of batches of all ranks, as of loader.on(ddp), and of this rank's rows, "
        "as of ddp(rows), add up in one step without synchronization: use one of them");
    own_losses_ = own;
  }
  std::uint64_t step = state_of(communicator_->device(), "reducer").random()->step();
  backwards_ = step == step_ ? backwards_ + 1 : 1;
  step_ = step;
  waiting_ = !pass.sync || !synchronizes();
  Engine& engine = *state_of(communicator_->device(), "reducer").engine;
  of_waiting_.drop_failed(engine, {}, false);
  of_waiting_.add(pass.failures);
  of_waiting_.forget_good(engine);
  if (waiting_) return;
  // Drop failures also of parameters without a gradient in this pass: an earlier round's failed sum, or a failed
  // gradient that waits, would fail the whole bucket.
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    ParameterGradient& gradient = parameters_[i].gradient_state();
    if (gradient.waits()) gradient.drop_failed(false);
    drop_failed(i, false);
  }
  update_buckets();
  // Ranks compare this text, so a rank that has synchronized more or less often than the others gets an error.
  std::string when = fmt::format("step {}", step_ + 1);
  if (backwards_ > 1) when += fmt::format(", backward {}", backwards_);
  for (std::size_t b = 0; b < buckets_.size(); ++b) reduce(*buckets_[b], b, when);
  ++all_rounds_;
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    if (in_bucket(i)) {
      summed_[i].add(of_waiting_);
      summed_[i].forget_good(engine);
    } else if (parameters_[i].gradient_state().present()) {
      parameters_[i].zero_grad();
    }
  }
  of_waiting_ = {};
}

// Moves parameters between buckets when the set of trained parameters, or their order, has changed. All ranks call this
// in the same state.
void BucketReducer::update_buckets() {
  std::vector<std::size_t> order = wanted();
  const bool cleared = std::ranges::all_of(order, [&](std::size_t i) { return summed_[i].empty(); });
  if (!cleared) {
    // The buckets hold sums that an optimizer has not read yet.
    const auto added = std::ranges::find_if_not(order, [&](std::size_t i) { return in_bucket(i); });
    if (added == order.end()) return;
    fail(
        "distributed data parallel: parameter {} is now trained, but gradients of an earlier backward() are still "
        "waiting: call step() or zero_grad() first",
        parameters_[*added].name());
  }
  if (!order_known_ && all_rounds_ > 0) {
    learn_order();
    order = wanted();
  }
  std::vector<std::size_t> now;
  for (const auto& bucket : buckets_) now.insert(now.end(), bucket->parameters.begin(), bucket->parameters.end());
  if (now == order) return;
  wait_for_buckets();
  std::ranges::fill(summed_, Passes());
  make_buckets(order);
}

std::vector<std::vector<std::vector<Array>>> BucketReducer::take_gradients(const Bucket& bucket) const {
  std::vector<std::vector<std::vector<Array>>> parts(bucket.parameters.size());
  for (std::size_t i = 0; i < parts.size(); ++i) {
    parts[i].resize(subtrees_.size());
    for (auto& [shard, sum] : parameters_[bucket.parameters[i]].gradient_state().take_subtrees()) {
      auto after = std::ranges::find_if(subtrees_, [&](const auto& b) { return shard < b.first + b.second; });
      check(after != subtrees_.end() && shard >= after->first,
            "distributed data parallel: a gradient of shard {}, which "
            "belongs to another rank",
            shard);
      auto& subtree = parts[i][static_cast<std::size_t>(after - subtrees_.begin())];
      subtree.resize(std::max(subtree.size(), shard - after->first + 1));
      subtree[shard - after->first] = ops::readable_from(sum, summing_device());
    }
  }
  return parts;
}

void BucketReducer::gather_on_gpu(Bucket& bucket, std::vector<std::vector<std::vector<Array>>>& parts) const {
  for (std::size_t i = 0; i < parts.size(); ++i) {
    for (std::size_t k = 0; k < parts[i].size(); ++k) {
      std::vector<Array>& subtree = parts[i][k];
      if (subtree.empty()) continue;
      const Array& destination = bucket.destinations[k][i];
      const bool single = std::ranges::count_if(subtree, &Array::defined) == 1;
      // The only gradient is the last one.
      const Array sum = single ? subtree.back()
                               : parameters_[bucket.parameters[i]].gradient_state().tree_sum(subtree, summing_device());
      if (sum.view().data != destination.view().data) ops::copy_(sum, destination);
      subtree = {destination};
    }
  }
}

void BucketReducer::reduce(Bucket& bucket, std::size_t number, const std::string& when) {
  auto parts = take_gradients(bucket);
  // Weight of each rank's gradient in the sum.
  const double share = own_losses_ ? 1.0 / communicator_->world_size() : 1.0;
  const std::shared_ptr<SummingGpu> gpu = communicator_->summing_gpu();
  if (gpu) gather_on_gpu(bucket, parts);
  std::vector<Array> reads, writes{bucket.sum, bucket.present};
  std::vector<std::vector<std::vector<View>>> leaves(parts.size());
  for (std::size_t i = 0; i < parts.size(); ++i) {
    for (std::size_t k = 0; k < parts[i].size(); ++k) {
      std::vector<View>& subtree = leaves[i].emplace_back();
      for (const Array& part : parts[i][k]) {
        subtree.push_back(part.defined() ? part.view() : View());
        if (part.defined()) reads.push_back(part);
      }
      if (subtree.empty() || bucket.destinations[k].empty()) continue;
      // The task writes the destination, unless the gradient was computed there. A GPU overwrites it as it sums.
      const Array& destination = bucket.destinations[k][i];
      if (gpu || share != 1 || subtree[0].data != destination.view().data) writes.push_back(destination);
    }
  }
  // Sums of earlier rounds that are still needed accumulate in bucket.total.
  std::vector<std::uint8_t> accumulates, moves;
  bool keeps_total = false;
  for (std::size_t i = 0; i < bucket.parameters.size(); ++i) {
    accumulates.push_back(!summed_[bucket.parameters[i]].empty());
    moves.push_back(accumulates[i] && !bucket.in_total[i]);
    keeps_total = keeps_total || (accumulates[i] && bucket.in_total[i]);
  }
  bool several = std::ranges::count(accumulates, 1) > 0;
  bucket.in_total.assign(bucket.parameters.size(), several);
  if (several) {
    if (!bucket.total.defined()) {
      bucket.total = ops::empty_like(bucket.sum);
      bucket.total_present = ops::empty_like(bucket.present);
    }
    for (const Array& t : {bucket.sum, bucket.present}) reads.push_back(t);
    // Otherwise the total is only written, as a whole, so that a failed batch of an earlier step cannot fail this one.
    if (keeps_total) {
      for (const Array& t : {bucket.total, bucket.total_present}) reads.push_back(t);
    }
    for (const Array& t : {bucket.total, bucket.total_present}) writes.push_back(t);
  }
  auto body = [backend = gpu ? &gpu->backend() : &communicator_->backend(), gpu, reducer = bucket.reducer,
               leaves = std::move(leaves), offsets = bucket.offsets, sizes = bucket.sizes, flags = bucket.flags,
               sum = bucket.sum.view(), present = bucket.present.view(), total = bucket.total.view(),
               total_present = bucket.total_present.view(), accumulates, moves, several, share,
               label = fmt::format("bucket {}, {}", number, when)](KernelContext& lane) {
    KernelContext& context = gpu ? gpu->context() : lane;
    auto segment = [&](void* array, DType dtype, std::size_t i) {
      return View{static_cast<std::byte*>(array) + offsets[i] * item_size(dtype),
                  dtype,
                  Layout::plain,
                  {static_cast<std::int64_t>(sizes[i])}};
    };
    for (std::size_t i = 0; i < leaves.size(); ++i) {
      if (moves[i]) {
        flags->total[i] = flags->latest[i];
        backend->run(context, kernels::Copy{segment(sum.data, DType::f32, i), segment(total.data, DType::f32, i)});
      }
      for (std::size_t k = 0; k < leaves[i].size(); ++k) {
        const std::vector<View>& subtree = leaves[i][k];
        reducer->set_present(k, i, !subtree.empty());
        if (subtree.empty()) continue;
        const CommBuffer contribution = reducer->contribution(k);
        View out = segment(contribution.data, contribution.dtype, i);
        out.shape = subtree.back().shape;
        sum_subtree(*backend, context, subtree, out);
        // Scales the contribution, not the result, because ranks of one host share the memory of the result.
        if (share != 1) backend->run(context, kernels::Affine{share, 0, out, out});
      }
    }
    if (gpu && share != 1) gpu->wait();
    reducer->reduce({.label = label});
    for (std::size_t i = 0; i < leaves.size(); ++i) {
      flags->latest[i] = reducer->result_present(i);
      if (!several) continue;
      const View from = segment(sum.data, DType::f32, i), to = segment(total.data, DType::f32, i);
      // The first sum is copied, because adding it to +0 would change -0.
      if (!accumulates[i] || !flags->total[i]) {
        backend->run(context, kernels::Copy{from, to});
        flags->total[i] = flags->latest[i];
      } else if (flags->latest[i]) {
        backend->run(context, kernels::Binary{BinaryOp::add, to, from, to});
      }
    }
    const auto show = [&](std::vector<std::uint8_t>& values, const View& to) {
      View from = to;
      from.data = values.data();
      backend->transfer(context, from, to, false);
    };
    show(flags->latest, present);
    if (several) show(flags->total, total_present);
    if (gpu) gpu->wait();
  };
  communicator_->push("all-reduce", CommChannel::bulk, reads, writes, std::move(body));
}

void BucketReducer::added(std::size_t index) {
  if (!order_known_ && all_rounds_ == 0 && std::ranges::find(found_, index) == found_.end()) found_.push_back(index);
}

void BucketReducer::clear(std::size_t index) { summed_[index] = {}; }

bool BucketReducer::drop_failed(std::size_t index, bool read) {
  if (summed_[index].empty()) return false;
  const auto [number, segment] = places_[index];
  const Bucket& bucket = *buckets_[number];
  const Array& sum = bucket.in_total[segment] ? bucket.total : bucket.sum;
  return summed_[index].drop_failed(*sum.storage()->engine, std::span(&sum, 1), read);
}

Array BucketReducer::destination(std::size_t index, int shard, Device device) {
  if (device != summing_device() || !in_bucket(index)) return {};
  auto subtree =
      std::ranges::find(subtrees_, static_cast<std::size_t>(shard), &std::pair<std::size_t, std::size_t>::first);
  if (subtree == subtrees_.end() || subtree->second > 1 || dtype_ != DType::f32) return {};
  auto [number, segment] = places_[index];
  return buckets_[number]->destinations[static_cast<std::size_t>(subtree - subtrees_.begin())][segment];
}

void BucketReducer::learn_order() {
  order_known_ = true;
  for (std::size_t i = parameters_.size(); i-- > 0;) {
    if (std::ranges::find(found_, i) == found_.end()) found_.push_back(i);
  }
  // Ranks may have seen different orders, or none. Any order is right as long as all ranks use the same one.
  std::string text(reinterpret_cast<const char*>(found_.data()), found_.size() * sizeof(found_[0]));
  text = communicator_->broadcast_on_host(text, "order of gradients");
  std::memcpy(found_.data(), text.data(), text.size());
  order_ = found_;
}

ReducedGradient BucketReducer::sum(std::size_t index, Device device) {
  check(!waiting_,
        "parameter {}: its gradient is not summed over the ranks yet: call backward() once after the no_sync() guard "
        "ends",
        parameters_[index].name());
  if (summed_[index].empty()) return {};
  auto [number, segment] = places_[index];
  const Bucket& bucket = *buckets_[number];
  bool several = bucket.in_total[segment];
  Array sum = bucket.segment(several ? bucket.total : bucket.sum, segment, parameters_[index].shape());
  Array present = ops::narrow(several ? bucket.total_present : bucket.present, static_cast<std::int64_t>(segment), 1);
  return {ops::readable_from(sum, device), ops::readable_from(present, device)};
}

std::vector<std::vector<std::size_t>> BucketReducer::buckets() const {
  std::vector<std::vector<std::size_t>> all;
  for (const auto& bucket : buckets_) all.push_back(bucket->parameters);
  return all;
}

}  // namespace lockstep
