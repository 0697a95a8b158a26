#include "lockstep/train/training_board.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

#include "lockstep/autograd/tensor_impl.h"
#include "lockstep/data/dataset.h"
#include "lockstep/nn/module.h"

namespace lockstep {
namespace {

// Returns pictures [N, C, H, W] side by side, eight in a row, two pixels apart. Inputs are normalized in many ways, so
// the least value becomes black and the largest white.
Tensor picture_grid(const Tensor& pictures) {
  constexpr std::int64_t kColumns = 8, kGap = 2;
  const std::int64_t n = pictures.size(0), channels = pictures.size(1), height = pictures.size(2),
                     width = pictures.size(3), columns = std::min(n, kColumns), rows = (n + columns - 1) / columns;
  const std::vector<float> from = pictures.to_host().to(DType::f32).to_vector<float>();
  const auto [low, high] = std::ranges::minmax(from);
  const float range = high > low ? high - low : 1;
  const std::int64_t all_rows = rows * (height + kGap) - kGap, all_columns = columns * (width + kGap) - kGap;
  std::vector<float> to(static_cast<std::size_t>(channels * all_rows * all_columns));
  for (std::int64_t i = 0; i < std::ssize(from); ++i) {
    const std::int64_t x = i % width, y = i / width % height, c = i / (width * height) % channels,
                       k = i / (width * height * channels);
    const std::int64_t row = k / columns * (height + kGap) + y, column = k % columns * (width + kGap) + x;
    to[static_cast<std::size_t>((c * all_rows + row) * all_columns + column)] =
        (from[static_cast<std::size_t>(i)] - low) / range;
  }
  return Tensor::from(to, {channels, all_rows, all_columns});
}

}  // namespace

void TrainingBoard::start(const TrainingStart& start) {
  module_ = start.module;
  reported_ = start.position.step;
  const bool begins = reported_ == 0;
  // A new run hides all of an earlier one in the folder, which may have been killed before its first checkpoint.
  board_.emplace(options_.folder, TensorBoardOptions{.purge_step = begins ? 0 : reported_ + 1});
  // Four spaces make it code in Markdown, which keeps it as it is.
  if (begins) board_->add_text("recipe", "    " + start.recipe->json());
  if (begins && first_.defined()) show_model();
}

void TrainingBoard::show_model() {
  constexpr std::int64_t kMostPictures = 16;
  const bool pictures = first_.shape().dim() == 4 && (first_.size(1) == 1 || first_.size(1) == 3);
  if (pictures) {
    std::vector<Tensor> some;
    for (std::int64_t i = 0; i < std::min(data_.size(), kMostPictures); ++i) {
      const Tensor picture = data_.get(i).at(0);
      const bool alike = std::equal(picture.shape().begin(), picture.shape().end(), first_.shape().begin() + 1,
                                    first_.shape().end()) &&
                         is_floating(picture.dtype()) == is_floating(first_.dtype()) &&
                         (some.empty() || picture.dtype() == some[0].dtype());
      if (alike) some.push_back(picture);
    }
    if (!some.empty()) board_->add_image("examples", picture_grid(stack(some)));
  }
  try {
    board_->add_graph(*module_, first_);
  } catch (const Error& error) {
    board_->add_text("graph", fmt::format("    no graph: {}", error.what()));
  }
}

bool TrainingBoard::observes(std::int64_t step) const {
  return options_.histogram_every > 0 && step % options_.histogram_every == 0;
}

void TrainingBoard::histogram(const std::string& tag, const Tensor& values, double divisor, std::int64_t step) {
  if (values.numel() == 0 || !is_floating(values.dtype())) return;
  std::vector<double> all = values.to_host().to(DType::f64).to_vector<double>();
  const auto bad = std::ranges::count_if(all, [](double x) { return !std::isfinite(x); });
  for (double& x : all) x /= divisor;
  if (bad > 0) return board_->add_scalar("not_finite/" + tag, static_cast<double>(bad), step);
  board_->add_histogram(tag, Tensor::from(all, {std::ssize(all)}), step);
}

void TrainingBoard::backward(const std::function<double()>& loss_scale) {
  if (!observes(step_)) return;
  const double scale = loss_scale();
  for (const auto& [name, p] : module_->named_parameters()) {
    if (!p.trainable()) continue;
    if (const Tensor gradient = p.gradient()) histogram("gradients/" + name, gradient, scale, step_);
  }
}

void TrainingBoard::update(std::int64_t step) {
  if (!observes(step)) return;
  for (const auto& [name, p] : module_->named_parameters()) histogram("weights/" + name, p.host_data(), 1, step);
}

void TrainingBoard::step(const StepReport& r) {
  reported_ = r.step;
  board_->add_scalar("train/loss", r.loss, r.step);
  board_->add_scalar("train/lr", r.learning_rate, r.step);
  board_->add_scalar("train/images_per_second", r.images_per_second, r.step);
  if (r.loss_scale) board_->add_scalar("train/loss_scale", *r.loss_scale, r.step);
  for (const auto& [name, value] : r.log) board_->add_scalar("train/" + name, value, r.step);
}

void TrainingBoard::epoch(const EpochReport& r) {
  board_->add_scalar("epoch/train_loss", r.train_loss, reported_);
  board_->add_scalar("epoch/data_seconds", r.data_seconds, reported_);
  if (r.test.total > 0) board_->add_scalar("epoch/test_acc", r.test.value(), reported_);
  for (const MetricResult& m : r.metrics) {
    if (m.table.empty()) board_->add_scalar("epoch/" + m.name, m.value, reported_);
  }
  for (const auto& [name, mean] : r.log) board_->add_scalar("epoch/" + name, mean, reported_);
}

}  // namespace lockstep
