#include "lockstep/train/training_board.h"

#include "lockstep/autograd/tensor_impl.h"
#include "lockstep/nn/module.h"

namespace lockstep {

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

bool TrainingBoard::has_histograms(std::int64_t step) const {
  return writer_.has_value() && histogram_every_ > 0 && step % histogram_every_ == 0;
}

void TrainingBoard::gradients(const Module& module, std::int64_t step) {
  for (const auto& [name, p] : module.named_parameters()) {
    if (!p.trainable() || !is_floating(p.dtype())) continue;
    const Tensor gradient = p.gradient();
    if (!gradient.defined() || gradient.numel() == 0) continue;
    const Tensor on_host = gradient.to_host();
    write([&, tag = "gradients/" + name](TensorBoardWriter& board) { board.add_histogram(tag, on_host, step); });
  }
}

void TrainingBoard::weights(const Module& module, std::int64_t step) {
  for (const auto& [name, p] : module.named_parameters()) {
    if (!is_floating(p.dtype()) || p.shape().numel() == 0) continue;
    const Tensor on_host = p.host_data();
    write([&, tag = "weights/" + name](TensorBoardWriter& board) { board.add_histogram(tag, on_host, step); });
  }
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
