#include "lockstep/train/step_watch.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <fstream>
#include <mutex>
#include <nlohmann/json.hpp>
#include <tuple>
#include <unordered_map>
#include <utility>

#include "lockstep/autograd/placement.h"
#include "lockstep/autograd/tensor_impl.h"
#include "lockstep/base/environment.h"
#include "lockstep/base/error.h"
#include "lockstep/base/file.h"
#include "lockstep/base/hmac.h"
#include "lockstep/base/sha256.h"
#include "lockstep/checkpoint/json_input.h"
#include "lockstep/ops/copy.h"
#include "lockstep/ops/launch.h"
#include "lockstep/ops/launch_observer.h"
#include "lockstep/ops/prepared.h"
#include "lockstep/receipt/state_digest.h"
#include "lockstep/runtime/device_state.h"

namespace lockstep {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::size_t kDigest = 32, kMostRequestBytes = 1 << 20;

std::span<const std::byte> bytes_of(const View& x) { return {static_cast<const std::byte*>(x.data), x.bytes()}; }

// Hashes the elements in plain order, one channel of one image at a time.
void hash_plain(const View& x, Sha256& hash) {
  if (x.layout == Layout::plain) return hash.update(bytes_of(x));
  const std::size_t size = item_size(x.dtype);
  const std::int64_t pixels = x.shape[2] * x.shape[3];
  const std::int64_t apart = x.layout == Layout::blocked16 ? kChannelBlock : x.shape[1];
  std::vector<std::byte> plane(static_cast<std::size_t>(pixels) * size);
  for (std::int64_t n = 0; n < x.shape[0]; ++n) {
    for (std::int64_t c = 0; c < x.shape[1]; ++c) {
      const auto* from = static_cast<const std::byte*>(x.data) +
                         static_cast<std::size_t>(offset4(x.layout, x.shape, n, c, 0, 0)) * size;
      for (std::int64_t i = 0; i < pixels; ++i) {
        std::memcpy(plane.data() + static_cast<std::size_t>(i) * size,
                    from + static_cast<std::size_t>(i * apart) * size, size);
      }
      hash.update(plane);
    }
  }
}

// Launches a task that hashes the array as it is at this point in the order of tasks.
Array digest_of(const Array& x) {
  const Device device = x.device().is_host() || x.device().host_visible()
                            ? x.device()
                            : state_of(x.device(), "bisect").host_visible_device();
  const Array in = ops::to_device(x, device, {.non_blocking = true});
  const Array digest = ops::empty({kDigest}, DType::u8, device);
  ops::launch("hash", {in}, {digest}, [from = in.view(), to = digest.view()](Backend&, KernelContext&) {
    Sha256 hash;
    hash_plain(from, hash);
    std::memcpy(to.data, hash.digest().data(), kDigest);
  });
  return digest;
}

// Flips the lowest bit of the highest byte, which changes an f32 or f64 by a power of two.
void flip_in(const Array& x, std::int64_t element) {
  check(x.device().is_host() || x.device().host_visible(), "bisect: cannot flip a bit on {}", x.device().name());
  check(element < x.numel(), "bisect: cannot flip element {} of {}", element, x);
  ops::launch("flip", {x}, {x}, [to = x.view(), element](Backend&, KernelContext&) {
    const auto size = static_cast<std::int64_t>(item_size(to.dtype));
    static_cast<unsigned char*>(to.data)[(plain_offset(to, element) + 1) * size - 1] ^= 1;
  });
}

// Returns whether x holds one of these weights in the element order of one instruction set.
bool is_prepared(const Array& x, std::span<const Array> reads) {
  return std::ranges::any_of(reads, [&](const Array& w) {
    if (!w.defined()) return false;
    const std::lock_guard lock(w.storage()->mutex);
    const auto* of_w = dynamic_cast<const ops::PreparedWeights*>(w.storage()->extension.get());
    return of_w &&
           std::ranges::find(of_w->results, x.storage(), &ops::PreparedWeights::Result::storage) != of_w->results.end();
  });
}

std::string hex_of(std::span<const std::byte> bytes) {
  return hexadecimal({reinterpret_cast<const char*>(bytes.data()), bytes.size()});
}

std::string hex_of_digest(const Array& digest) {
  const std::vector<std::uint8_t> bytes = digest.to_vector<std::uint8_t>();
  return hex_of(std::as_bytes(std::span(bytes)));
}

Json shape_of(const Array& x) {
  Json shape = Json::array();
  for (int i = 0; i < x.shape().dim(); ++i) shape.push_back(x.size(i));
  return shape;
}

// Returns the state that a step computes, without the learning rates, which the recipe has.
TrainingStateParts state_after(const Module& module, const Optimizer& optimizer) {
  TrainingStateParts state{.weights = state_dict(module), .optimizer = optimizer.state_dict()};
  std::erase_if(state.optimizer, [](const auto& entry) { return entry.first.find('.') == std::string::npos; });
  return state;
}

}  // namespace

class StepWatch::Observer final : public ops::LaunchObserver {
 public:
  Observer(StepWatch& watch, Module& module) : watch_(watch) {
    for (const auto& [name, m] : module.named_modules()) names_.try_emplace(m, name);
  }

  void launching(std::string_view name, std::span<const Array> reads, std::span<const Array> writes) override {
    const ops::ObserverPause pause;
    key_.reset();
    const ops::Origin origin = ops::OriginScope::current();
    if (origin.direction == ops::Origin::Direction::none) return;
    const auto known = names_.find(origin.module);
    key_ = Key{.direction = origin.direction == ops::Origin::Direction::forward ? "forward" : "backward",
               .module = known == names_.end() ? "" : known->second,
               .operation = std::string(name),
               .shard = ops::ShardScope::current()};
    key_->occurrence = counts_[{*key_, std::string(writes.front().device().name())}]++;
    if (!watch_.wants(*key_)) return;
    for (const Array& x : reads) {
      if (x.defined() && !is_prepared(x, reads))
        watch_.inputs_.push_back({.key = *key_, .value = x, .digest = digest_of(x)});
    }
  }

  void launched(std::string_view name, std::span<const Array> writes) override {
    if (!key_) return;
    const ops::ObserverPause pause;
    flip(name, writes);
    for (std::size_t i = 0; i < writes.size(); ++i) {
      if (writes[i].defined()) watch_.record(*key_, static_cast<int>(i), writes[i]);
    }
  }

 private:
  void flip(std::string_view name, std::span<const Array> writes) {
    const auto& wanted = watch_.request_.flip;
    if (flipped_ || !wanted || wanted->step != watch_.step_ || wanted->operation != name ||
        wanted->module != key_->module || wanted->shard != key_->shard) {
      return;
    }
    flipped_ = true;
    flip_in(writes.front(), wanted->element);
    watch_.log_->write({{"flipped", watch_.step_}});
  }

  StepWatch& watch_;
  std::unordered_map<const void*, std::string> names_;
  std::map<std::pair<Key, std::string>, int> counts_;  // per device: a replica's operations are its own
  std::optional<Key> key_;
  bool flipped_ = false;
};

std::shared_ptr<StepWatch> StepWatch::from_environment(int rank, int ranks, int shards, const Recipe& recipe,
                                                       const Optimizer& optimizer) {
  const std::optional<std::string> folder = environment("LOCKSTEP_BISECT");
  if (!folder) return nullptr;
  return std::shared_ptr<StepWatch>(new StepWatch(*folder, rank, ranks, shards, recipe, optimizer));
}

StepWatch::StepWatch(const std::filesystem::path& folder, int rank, int ranks, int shards, const Recipe& recipe,
                     const Optimizer& optimizer)
    : optimizer_(optimizer), request_(read_request(folder)) {
  // The first Trainer that trains gets index 0.
  std::int64_t trainer = 0;
  const auto name = [&] { return folder / fmt::format("rank-{}.trainer-{}", rank, trainer); };
  while (std::filesystem::exists(name().string() + ".jsonl")) ++trainer;
  file_ = name();
  log_.emplace(file_.string() + ".jsonl", LogWriterOptions{.what = "LOCKSTEP_BISECT"});
  if (trainer != request_.trainer) request_ = {.step = request_.step > 0 ? -1 : 0};
  Json entries = Json::object();
  for (const auto& [entry, value] : recipe) entries[entry] = value.json();
  log_->write({{"rank", rank}, {"ranks", ranks}, {"shards", shards}, {"recipe", entries}});
}

StepWatch::~StepWatch() = default;

StepWatch::Request StepWatch::read_request(const std::filesystem::path& folder) {
  const std::filesystem::path path = folder / "request.json";
  check(std::filesystem::exists(path), "LOCKSTEP_BISECT is {}: cannot open {}; `lockstep bisect` sets it",
        folder.string(), path.string());
  Request request;
  try {
    const auto json = parse_json<nlohmann::json>(read_file(path, kMostRequestBytes));
    request.trainer = json.value("trainer", std::int64_t{0});
    request.step = json.value("step", std::int64_t{0});
    if (json.contains("value")) {
      const auto& v = json["value"];
      request.value.emplace(Key{.direction = v.at(0).get<std::string>(),
                                .module = v.at(1).get<std::string>(),
                                .operation = v.at(2).get<std::string>(),
                                .occurrence = v.at(3).get<int>(),
                                .shard = v.at(4).get<int>()},
                            v.at(5).get<int>());
    }
    if (json.contains("flip")) {
      const auto& f = json["flip"];
      request.flip = Flip{.step = f.at("step").get<std::int64_t>(),
                          .module = f.at("module").get<std::string>(),
                          .operation = f.at("operation").get<std::string>(),
                          .shard = f.at("shard").get<int>(),
                          .element = f.at("element").get<std::int64_t>()};
    }
  } catch (const nlohmann::json::exception& error) {
    fail("{}: {}", path.string(), error.what());
  }
  return request;
}

bool StepWatch::observes(std::int64_t step) const {
  return step == request_.step || (request_.flip && request_.flip->step == step);
}

void StepWatch::begin(std::int64_t step) {
  abandon();
  step_ = step;
  if (!observes(step)) return;
  origin_.emplace(ops::Origin{nullptr, ops::Origin::Direction::forward});
  observer_ = std::make_unique<Observer>(*this, *module_);
}

void StepWatch::batch(std::span<const Tensor> parts) {
  if (!records()) return;
  const ops::ObserverPause pause;
  for (std::size_t i = 0; i < parts.size(); ++i) {
    for (std::size_t s = 0; s < parts[i]->parts.size(); ++s) {
      const bool cut = parts[i]->kind == Kind::cut;
      record({.direction = "batch",
              .module = fmt::format("part {}", i),
              .occurrence = batches_,
              .shard = cut ? parts[i]->at->slots()[s].shard : -1},
             0, parts[i]->parts[s]);
    }
  }
  ++batches_;
}

void StepWatch::backward(const std::function<double()>&) {
  observer_ = nullptr;
  origin_.reset();
  if (!records()) return;
  for (const auto& [name, p] : module_->named_parameters()) {
    if (!p.trainable()) continue;
    if (const Tensor g = p.gradient()) record({.direction = "gradient", .module = name}, 0, g->array());
  }
}

void StepWatch::updated(std::span<const Tensor> losses) {
  if (!records() && request_.step != 0) return;
  const TrainingStateParts state = state_after(*module_, optimizer_);
  const std::map<std::string, std::string> hashes = state_digest(state).by_name();
  if (records()) {
    for (std::size_t i = 0; i < losses.size(); ++i) {
      record({.direction = "loss", .occurrence = static_cast<int>(i)}, 0, losses[i]->array());
    }
    for (const auto& [name, tensor] : named_parts(state)) {
      record({.direction = "state", .module = name}, 0, tensor->array(), hashes.at(name));
    }
    return write_records();
  }
  Json bits = Json::array();
  for (const Tensor& loss : losses) {
    const Array value = ops::to_device(loss->array(), kHost);
    bits.push_back(hex_of(bytes_of(value.view())));
  }
  log_->write({{"step", step_}, {"loss", bits}, {"state", hashes}});
}

void StepWatch::abandon() {
  observer_ = nullptr;
  origin_.reset();
  batches_ = 0;
  records_.clear();
  inputs_.clear();
}

// Skips shards without samples, because there is nothing to compare.
void StepWatch::record(const Key& key, int output, const Array& array, const std::string& hash) {
  if (!records() || array.numel() == 0) return;
  const Array described(nullptr, {nullptr, array.dtype(), Layout::plain, array.shape()});
  records_.push_back({.key = key,
                      .output = output,
                      .value = described,
                      .digest = hash.empty() ? digest_of(array) : Array(),
                      .hash = hash,
                      .device = std::string(array.device().name())});
  if (request_.value && wants(key) && request_.value->second == output && !value_.defined()) {
    value_ = ops::copy_of(ops::to_layout(array, Layout::plain));
  }
}

void StepWatch::write_records() {
  for (const Record& r : records_) {
    log_->write(
        {{"operation", {r.key.direction, r.key.module, r.key.operation, r.key.occurrence, r.key.shard, r.output}},
         {"shape", shape_of(r.value)},
         {"dtype", name(r.value.dtype())},
         {"device", r.device},
         {"hash", r.hash.empty() ? hex_of_digest(r.digest) : r.hash}});
  }
  if (value_.defined()) {
    const Array host = ops::to_device(value_, kHost);
    const std::filesystem::path path = file_.string() + ".bin";
    write_file_atomically(path, bytes_of(host.view()));
    Json inputs = Json::array();
    for (const Record& in : inputs_) {
      inputs.push_back(
          {{"shape", shape_of(in.value)}, {"dtype", name(in.value.dtype())}, {"hash", hex_of_digest(in.digest)}});
    }
    log_->write(
        {{"value", path.string()}, {"shape", shape_of(host)}, {"dtype", name(host.dtype())}, {"inputs", inputs}});
  }
  log_->write({{"observed", step_}});
  abandon();
}

}  // namespace lockstep
