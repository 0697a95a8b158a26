// One step of a Trainer: micro-batches, the update, and the delayed report.
#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>

#include "lockstep/autograd/losses.h"
#include "lockstep/base/tree.h"
#include "lockstep/ops/elementwise.h"
#include "lockstep/ops/launch.h"
#include "lockstep/parallel/split.h"
#include "lockstep/parallel/stop_votes.h"
#include "lockstep/train/rate_meter.h"
#include "lockstep/train/trainer.h"
#include "lockstep/train/training_log.h"

namespace lockstep {

double Trainer::weight_of(const Example& batch) const {
  if (options_.loss_weight) return options_.loss_weight(batch);
  const Tensor& labels = batch.at(1);
  if (labels.dtype() != DType::i64) return static_cast<double>(labels.size(0));
  const std::span all(labels.view().as<std::int64_t>(), static_cast<std::size_t>(labels.numel()));
  return static_cast<double>(labels.numel() - std::ranges::count(all, kIgnoredLabel));
}

// Weights are added in the shards' tree, so shares have the same bits on any layout.
std::vector<double> Trainer::shares_of(std::span<const Example> step) const {
  const TrainerOptions& o = options_;
  const bool default_loss = !o.loss && !o.forward && step[0].size() == 2;
  const auto shards = static_cast<std::size_t>(o.shards);
  std::vector<double> samples, weights;
  for (std::size_t i = 0; i < step.size(); ++i) {
    const std::int64_t n = loader_.batch_examples(position_.batch + static_cast<std::int64_t>(i));
    samples.push_back(static_cast<double>(n));
    if (!o.loss_weight && !default_loss) continue;
    const auto [begin, end] = distributed_ ? distributed_->rows_of(n) : std::pair<std::int64_t, std::int64_t>{0, n};
    const std::size_t first = weights.size();
    weights.resize(first + shards, 0);  // other ranks have the other shards
    std::int64_t row = 0;
    for (std::size_t s = 0; const std::int64_t size : split_sizes(n, o.shards)) {
      if (row >= begin && row + size <= end) {
        Example rows;
        for (const Tensor& part : step[i]) rows.push_back(part.narrow(0, row - begin, size));
        const double weight = weight_of(rows);
        check(std::isfinite(weight) && weight >= 0,
              "trainer: TrainerOptions::loss_weight returned {}, expected a finite number of at least 0", weight);
        weights[first + s] = weight;
      }
      row += size;
      ++s;
    }
  }
  const auto normalized = [](std::vector<double> all) {
    double sum = 0;
    for (const double x : all) sum += x;
    for (double& x : all) x /= sum;
    return all;
  };
  if (weights.empty()) return normalized(std::move(samples));
  if (distributed_) weights = o.communicator->sum_on_host(std::move(weights), "weights of micro-batches");
  std::vector<double> totals;
  for (std::size_t first = 0; first < weights.size(); first += shards) {
    totals.push_back(*tree_fold(
        first, shards, [&](std::size_t i) { return std::optional(weights[i]); }, std::plus<>()));
  }
  // Nothing counts: the loss is NaN, as that of the whole batch would be.
  const bool none = std::ranges::all_of(totals, [](double weight) { return weight == 0; });
  return normalized(none ? std::move(samples) : std::move(totals));
}

void Trainer::run_step(std::span<Example> step) {
  for (const Example& batch : step) {
    check(options_.forward ? !batch.empty() : batch.size() == 2,
          "trainer: examples have {} parts, expected inputs and labels, or TrainerOptions::forward", batch.size());
  }
  const std::vector<double> shares = step.size() == 1 ? std::vector<double>{1} : shares_of(step);
  const auto last = static_cast<std::size_t>(
      shares.rend() - std::ranges::find_if(shares.rbegin(), shares.rend(), [](double share) { return share != 0; }));
  for (std::size_t i = 0; i < step.size(); ++i, ++position_.batch) {
    const std::int64_t samples = loader_.batch_examples(position_.batch);
    current_.report.samples += samples;
    // A mean over nothing would make the step NaN.
    if (shares[i] != 0) run_micro_batch(step[i], samples, shares[i], i + 1 == last);
    step[i].clear();
  }
}

void Trainer::run_micro_batch(Example& batch, std::int64_t samples, double share, bool last) {
  const TrainerOptions& o = options_;
  std::vector<Tensor> parts;
  if (distributed_) {
    parts = distributed_->split(batch, samples);
  } else {
    const std::vector<int>& shares = shares_.devices_of(0);
    const SplitOptions split{.shards = o.shards, .balance = {shares.begin(), shares.end()}};
    for (const Tensor& part : batch) parts.push_back(split_and_load(part, o.devices, split));
  }
  // The scale that this step uses, read before the update and outside a recording.
  if (scaler_ && !current_.loss_scale.defined()) current_.loss_scale = scaler_->current();
  // Processes stop between steps, so they vote with the last micro-batch.
  const bool votes = distributed_ && last;
  if (votes) distributed_->stop_votes().cast(stop_);
  const Tensor loss = records() ? recorded_step(parts) : learn(parts, share, last);
  current_.losses.emplace_back(share, loss.detach());
  if (votes) {
    current_.stopped = distributed_->stop_votes().count();
    current_.learned = ops::empty({1}, DType::f32, loss.device());
    ops::fill_(current_.learned, 1);
  }
}

// Exchanges between ranks differ from step to step, and a step of micro-batches is several calls: neither is recorded.
bool Trainer::records() const {
  return options_.record_steps && !options_.communicator && options_.accumulate == 1 && !(balancer_ && on_gpu());
}

bool Trainer::on_gpu() const {
  return std::ranges::any_of(options_.devices, [](Device d) { return d.kind() == DeviceKind::cuda; });
}

std::string Trainer::why_not_recorded() const {
  if (!options_.record_steps) return "";
  if (options_.communicator) return "it is one of several processes";
  if (options_.accumulate > 1) return "it has several micro-batches";
  if (!records()) return "the speed of each GPU is measured, and a CUDA graph has one time for all";
  return recorded_ ? recorded_->why_not() : "";
}

std::string Trainer::why_no_graph() const {
  return on_gpu() && recorded_ && recorded_->recorded() ? recorded_->why_no_graph() : "";
}

BatchOutputs Trainer::outputs_of(std::span<const Tensor> parts) const {
  const TrainerOptions& o = options_;
  if (o.forward) return o.forward({parts.begin(), parts.end()});
  const Tensor &x = parts[0], &labels = parts[1];
  // Integers, such as numbers of words, are not cast.
  const Tensor outputs = module_(is_floating(x.dtype()) ? x.to(o.dtype) : x);
  return {
      .loss = o.loss ? o.loss(outputs, labels) : cross_entropy(outputs, labels, {.label_smoothing = o.label_smoothing}),
      .outputs = outputs};
}

Tensor Trainer::learn(std::span<const Tensor> parts, double share, bool sync) {
  const DtypeWatch watch(options_.dtype);
  const auto [loss, outputs, targets] = outputs_of(parts);
  check(loss.defined(), "trainer: TrainerOptions::forward returned no loss");
  // A model of words chooses its own type. The recipe and the loss scale follow the option.
  const DType dtype = outputs.dtype();
  check(!is_half_dtype(dtype) || dtype == options_.dtype,
        "trainer: the model computes in {}, expected TrainerOptions::dtype, {}", name(dtype), name(options_.dtype));
  if (is_half_dtype(options_.dtype) && !dtype_found_) {
    dtype_found_ = watch.seen();
    check(dtype_found_, "trainer: nothing is computed in {}, TrainerOptions::dtype: {}", name(options_.dtype),
          options_.forward ? "expected `forward` to cast its inputs, as in batch[0].to(dtype)"
                           : "expected a model whose options name it, as GPTOptions::dtype");
  }
  loss.backward({.share = share, .scales = scaler_ ? scaler_->scales() : std::span<const Array>(), .sync = sync});
  return loss;
}

bool Trainer::keeps_learning_rate() const {
  const ScheduleOptions& s = options_.schedule;
  return s.kind == ScheduleKind::constant && s.warmup == 0 && !s.lr_lambda;
}

// Another Trainer's schedule may have left another rate, also where this one keeps the rate.
void Trainer::schedule_learning_rate() {
  const double rate =
      keeps_learning_rate() ? optimizer_.base_learning_rate() : scheduled_lr(options_.schedule, position_.step);
  if (rate != optimizer_.learning_rate()) optimizer_.set_scheduled_learning_rate(rate);
}

void Trainer::update() {
  if (scaler_) {
    optimizer_.unscale(*scaler_, options_.clip_norm);
  } else if (options_.clip_norm > 0) {
    optimizer_.clip_grad_norm(options_.clip_norm);
  }
  optimizer_.step();
}

Tensor Trainer::recorded_step(std::span<const Tensor> parts) {
  std::vector<bool> trainable;
  for (const Parameter& p : module_.parameters()) trainable.push_back(p.trainable());
  // A recording trains the parameters that were trained when it was made.
  if (!recorded_ || trainable != recorded_trainable_) {
    recorded_trainable_ = std::move(trainable);
    recorded_ = std::make_unique<RecordedStep>([this](std::span<const Tensor> inputs) {
      const Tensor loss = learn(inputs, 1, true);
      update();
      return std::vector<Tensor>{loss};
    });
  }
  schedule_learning_rate();
  return recorded_->run(parts)[0];
}

void Trainer::finish_step(std::int64_t batches) {
  if (!records()) {
    schedule_learning_rate();
    update();
  }
  if (average_) average_->update();
  current_.report.learning_rate = optimizer_.learning_rate();
  ++position_.step;
  if (on_update) on_update(position_.step);
  StepReport& report = current_.report;
  report.step = position_.step;
  report.epoch = position_.epoch + 1;
  report.batch = steps_of(position_.batch);
  report.batches = steps_of(batches);
  report.shares = shares_.all();
  pending_.push_back(std::exchange(current_, {}));
  // A few steps stay in flight, so that the devices never wait for the host.
  constexpr std::size_t kInFlight = 2;
  read_losses(kInFlight);
}

// Collective; runs between two steps. `loop` stands on the batch that has been used.
void Trainer::rebalance(std::optional<DataLoader::Iterator>& loop) {
  if (!balancer_ || !balancer_->step()) {
    ++*loop;
    return;
  }
  shares_ = balancer_->shares();
  // The recording has the tasks of other shares, so the step is recorded again.
  recorded_ = nullptr;
  if (!distributed_) {
    ++*loop;
    return;
  }
  // Batches that were loaded ahead have other rows.
  loop.reset();
  distributed_->set_shares(shares_);
  loader_.skip_batches(position_.batch);
  loop.emplace(loader_.begin());
}

void Trainer::read_losses(std::size_t leave) {
  while (pending_.size() > leave) {
    PendingLoss next = std::move(pending_.front());
    pending_.pop_front();
    StepReport& report = next.report;
    // Waking up for the loss, which comes first, would take a core from the backward pass. After it, cores wait for the
    // gradients of other processes.
    if (next.learned.defined()) next.learned.wait();
    report.loss = 0;
    for (auto& [share, loss] : next.losses)
      report.loss += share * (loss.dtype() == DType::f64 ? loss.item<double>() : double{loss.item<float>()});
    if (next.stopped.defined()) agreed_stop_ = agreed_stop_ || next.stopped.item<float>() != 0;
    if (!std::isfinite(report.loss)) {
      pending_.clear();
      fail("the loss is {} at step {}{}",
           std::isnan(report.loss) ? std::numeric_limits<double>::quiet_NaN() : report.loss, report.step,
           last_good_checkpoint());
    }
    if (next.loss_scale.defined()) {
      report.loss_scale = next.loss_scale.item<float>();
      // At such a small scale, overflow is not the cause.
      check(*report.loss_scale >= 0x1p-20, "the gradients are still not finite at step {} with the smallest loss scale",
            report.step);
    }
    report.images_per_second = rate_->add(RateMeter::now(), report.samples);
    report.seconds = rate_->seconds();
    position_.loss_sum += report.loss * static_cast<double>(report.samples);
    position_.samples += report.samples;
    if (log_) log_->step(report);
    if (on_step) on_step(report);
  }
}

}  // namespace lockstep
