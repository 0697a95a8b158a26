// Writes curves, histograms, pictures, texts, and graphs of models for TensorBoard: PyTorch's SummaryWriter.
//
//   TensorBoardWriter board("runs/7");
//   board.add_scalar("train/loss", loss.item<float>(), step);
//   board.add_histogram("0.weight", net["0.weight"], step);
//   board.add_text("recipe", recipe.str());
//   board.add_image("digit", image);
//   board.add_graph(net, zeros({1, 1, 28, 28}));
//
// tensorboard --logdir runs shows all folders below runs. Trainer writes one by itself: TrainerOptions::tensorboard.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "lockstep/autograd/tensor.h"
#include "lockstep/nn/module.h"

namespace LOCKSTEP_API lockstep {

struct TensorBoardOptions {
  // Set it for a run that resumes: TensorBoard drops what earlier files of the folder have from this step on.
  std::optional<std::int64_t> purge_step = {};
  // Time of all events, in seconds since 1970, so that equal runs have equal bytes. 0: the current time of each event.
  double wall_time = 0;
};

// The file that Trainer writes: tensorboard --logdir FOLDER.
struct TensorBoardLogOptions {
  // Empty: no file. A resumed run adds a file to the folder, and TensorBoard drops what earlier files have from its
  // first step on. train() throws if it cannot make the file; a later failure ends the file, not the run: see
  // TrainingResult::failures.
  std::filesystem::path folder{};
  // Also writes histograms of all weights and gradients at every such step, which waits for them and is not recorded.
  // 0: none. Gradients are without the loss scale, and before they are clipped. If some values are not finite,
  // not_finite/gradients/NAME (or .../weights/NAME) has their number instead.
  std::int64_t histogram_every = 0;
};

// One file in the folder, events.out.tfevents.TIME.HOST.PROCESS.NUMBER. Each event is in the file when its call
// returns. Call it from one thread at a time. Errors name the file and the system's reason, and leave the file as it
// was. In tags and texts, bytes that are not UTF-8 become U+FFFD, because TensorBoard reads no file that has them.
class TensorBoardWriter {
 public:
  // Makes the folder if it does not exist.
  explicit TensorBoardWriter(const std::filesystem::path& folder, TensorBoardOptions options = {});
  ~TensorBoardWriter();
  TensorBoardWriter(TensorBoardWriter&&) noexcept;
  TensorBoardWriter& operator=(TensorBoardWriter&&) noexcept;

  // NaN and infinities are shown as such.
  void add_scalar(std::string_view tag, double value, std::int64_t step);
  // Counts all elements in TensorFlow's buckets, whose limits grow by a factor of 1.1. Waits for the values. Throws for
  // values that are not finite, which no bucket holds, and for a tensor without elements.
  void add_histogram(std::string_view tag, const Tensor& values, std::int64_t step);
  // Adds a text in Markdown.
  void add_text(std::string_view tag, std::string_view text, std::int64_t step = 0);
  // Adds one picture [C, H, W] of one or three channels: u8, or floating values, which are clipped to [0, 1]. Waits for
  // the values. Throws for other shapes and types, and for NaN.
  void add_image(std::string_view tag, const Tensor& image, std::int64_t step = 0);
  // Adds the graph of model(input), in evaluation mode, with the names of modules as scopes; a file has one graph.
  // Calls the model once. This sets unknown shapes, as a first batch does, and changes nothing else.
  void add_graph(Module& model, const Tensor& input);
  // Adds bytes that a plugin of TensorBoard reads, such as "hparams".
  void add_plugin_data(std::string_view tag, std::string_view plugin, std::string_view content);
  // Sets the time of later events, like TensorBoardOptions::wall_time.
  void set_wall_time(double seconds);

  const std::filesystem::path& path() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace lockstep
