// The figure of a training run: test accuracy and train loss by epoch, as an SVG file.
#pragma once

#include <filesystem>
#include <span>
#include <string>

#include "lockstep/base/export.h"

namespace LOCKSTEP_API lockstep {

// A value that is not finite (no evaluation, a diverged loss) leaves a gap in its line.
struct EpochResult {
  int epoch = 1;
  double train_loss = 0;
  double test_accuracy = 0;  // in [0, 1]
};

struct TrainingPlotOptions {
  std::string title = {};  // UTF-8, for example the model and its devices
  int epochs = 0;          // the planned number: the figure leaves room for them
};

// Returns the text of an SVG file. The results must be in ascending order of epochs; none gives empty axes.
std::string training_plot_svg(std::span<const EpochResult> results, const TrainingPlotOptions& options = {});

// Writes that text. Replaces the file as a whole, so that a viewer always finds a complete one. Throws if it cannot.
void write_training_plot(const std::filesystem::path& path, std::span<const EpochResult> results,
                         const TrainingPlotOptions& options = {});

}  // namespace lockstep
