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

// Pictures [N, C, H, W] beside each other, eight in a row, two pixels apart. Inputs are normalized in many ways, so the
// least value becomes black and the largest white.
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

TrainingBoard::TrainingBoard(const TensorBoardLogOptions& options, const TrainingPosition& position,
                             const Recipe& recipe)
    : histogram_every_(options.histogram_every) {
  writer_.emplace(options.folder, TensorBoardOptions{.purge_step = position.step > 0 ? std::optional(position.step + 1)
                                                                                     : std::nullopt});
  // Four spaces make it code in Markdown, which keeps it as it is.
  if (position.step == 0) write([&](TensorBoardWriter& board) { board.add_text("recipe", "    " + recipe.json()); });
}

template <typename F>
void TrainingBoard::write(const F& f) {
  if (!writer_) return;
  try {
    f(*writer_);
  } catch (const Error& error) {
    error_ = error.what();
    writer_.reset();
  }
}

void TrainingBoard::start(Module& module, const Dataset& data, const Tensor& first) {
  constexpr std::int64_t kMostPictures = 16;
  const bool pictures = first.shape().dim() == 4 && (first.size(1) == 1 || first.size(1) == 3);
  if (pictures) {
    std::vector<Tensor> some;
    for (std::int64_t i = 0; i < std::min(data.size(), kMostPictures); ++i) {
      const Tensor picture = data.get(i).at(0);
      const bool alike =
          std::equal(picture.shape().begin(), picture.shape().end(), first.shape().begin() + 1, first.shape().end()) &&
          picture.dtype() == first.dtype();
      if (alike) some.push_back(picture);
    }
    if (!some.empty()) write([&](TensorBoardWriter& board) { board.add_image("examples", picture_grid(stack(some))); });
  }
  write([&](TensorBoardWriter& board) {
    try {
      board.add_graph(module, first);
    } catch (const Error& error) {
      board.add_text("graph", fmt::format("    no graph: {}", error.what()));
    }
  });
}

bool TrainingBoard::has_histograms(std::int64_t step) const {
  return writer_.has_value() && histogram_every_ > 0 && step % histogram_every_ == 0;
}

void TrainingBoard::histogram(const std::string& tag, const Tensor& values, double divisor, std::int64_t step) {
  if (values.numel() == 0 || !is_floating(values.dtype())) return;
  std::vector<double> all = values.to_host().to(DType::f64).to_vector<double>();
  const auto bad = std::ranges::count_if(all, [](double x) { return !std::isfinite(x); });
  for (double& x : all) x /= divisor;
  write([&](TensorBoardWriter& board) {
    if (bad > 0) return board.add_scalar("not_finite/" + tag, static_cast<double>(bad), step);
    board.add_histogram(tag, Tensor::from(all, {std::ssize(all)}), step);
  });
}

void TrainingBoard::gradients(const Module& module, std::int64_t step, double loss_scale) {
  for (const auto& [name, p] : module.named_parameters()) {
    if (!p.trainable()) continue;
    if (const Tensor gradient = p.gradient()) histogram("gradients/" + name, gradient, loss_scale, step);
  }
}

void TrainingBoard::weights(const Module& module, std::int64_t step) {
  for (const auto& [name, p] : module.named_parameters()) histogram("weights/" + name, p.host_data(), 1, step);
}

void TrainingBoard::step(const StepReport& r) {
  write([&](TensorBoardWriter& board) {
    board.add_scalar("train/loss", r.loss, r.step);
    board.add_scalar("train/lr", r.learning_rate, r.step);
    board.add_scalar("train/images_per_second", r.images_per_second, r.step);
    if (r.loss_scale) board.add_scalar("train/loss_scale", *r.loss_scale, r.step);
    for (const auto& [name, value] : r.log) board.add_scalar("train/" + name, value, r.step);
  });
}

void TrainingBoard::epoch(const EpochReport& r, std::int64_t step) {
  write([&](TensorBoardWriter& board) {
    board.add_scalar("epoch/train_loss", r.train_loss, step);
    board.add_scalar("epoch/data_seconds", r.data_seconds, step);
    if (r.test.total > 0) board.add_scalar("epoch/test_acc", r.test.value(), step);
    for (const MetricResult& m : r.metrics) {
      if (m.table.empty()) board.add_scalar("epoch/" + m.name, m.value, step);
    }
    for (const auto& [name, mean] : r.log) board.add_scalar("epoch/" + name, mean, step);
  });
}

}  // namespace lockstep
