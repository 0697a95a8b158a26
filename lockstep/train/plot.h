// Plots of a run as SVG files: curves in panels, drawn while the run goes on, and the usual plot of a training.
//
//   Animator plot("train.svg", {.title = "a regression",
//                               .x = {.low = 1, .high = 10},
//                               .panels = {{"train loss", "test loss"}, {"learning rate"}}});
//   for (int epoch = 1; epoch <= 10; ++epoch) {
//     ...
//     plot.add(epoch, {train_loss, test_loss, sgd.learning_rate()});  // writes the file anew
//   }
#pragma once

#include <filesystem>
#include <limits>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "lockstep/base/export.h"
#include "lockstep/checkpoint/epoch_report.h"

namespace LOCKSTEP_API lockstep {

// A value that is not finite, such as NaN, leaves a gap.
struct CurvePoint {
  double x = 0;
  double y = 0;
};

// Which best value the legend shows beside the last value of a curve.
enum class CurveBest { none, largest, smallest };

struct Curve {
  std::string name;
  std::vector<CurvePoint> points{};  // in ascending order of x
  CurveBest best = CurveBest::none;  // names the best value and its x
  int decimals = -1;                 // of values in the legend; -1: four significant digits
  // Limits of the axis, such as 0 and 1 for an accuracy.
  double least = -std::numeric_limits<double>::infinity();
  double most = std::numeric_limits<double>::infinity();
  // The axis covers at least this range, so that noise does not look like a climb.
  double least_range = 0;
};

// The curves of one panel share its axes.
struct PlotPanel {
  std::vector<Curve> curves;
};

struct PlotAxisOptions {
  std::string name = "epoch";
  // The axis covers at least these values, so that it leaves room for later points.
  std::optional<double> low = {}, high = {};
};

struct PlotOptions {
  std::string title = {};  // UTF-8; cut if it is too long for the picture
  PlotAxisOptions x = {};
};

// Returns a plot as the text of an SVG file, with two panels beside each other. Panels without a finite value are left
// out; if there is none at all, the first one has empty axes. The picture has light and dark colors
// (prefers-color-scheme).
std::string plot_svg(std::span<const PlotPanel> panels, const PlotOptions& options = {});

// Writes a plot to a file. Replaces the file as a whole, so that a viewer always finds a complete one. Throws if it
// cannot write the file.
void write_plot(const std::filesystem::path& path, std::span<const PlotPanel> panels, const PlotOptions& options = {});

struct AnimatorOptions {
  std::string title = {};
  PlotAxisOptions x = {};
  // The names of the curves in each panel.
  std::vector<std::vector<std::string>> panels;
};

// Draws any curves while they grow, like d2l.Animator, into an SVG file.
class Animator {
 public:
  Animator(std::filesystem::path path, AnimatorOptions options);
  // Adds a point to each curve, in the order of all panels' names, and writes the file. A curve without a value gets no
  // point; NaN leaves a gap. Throws if there are more or fewer values than curves, and if it cannot write the file.
  void add(double x, const std::vector<std::optional<double>>& values);
  std::string svg() const;

 private:
  std::filesystem::path path_;
  PlotOptions options_;
  std::vector<PlotPanel> panels_;
};

struct TrainingPlotOptions {
  std::string title = {};  // UTF-8, for example the model and its devices
  int epochs = 0;          // the planned number: the figure leaves room for them
};

// Returns panels for the test accuracy and the train loss, with gaps where a value is not finite or nothing was tested.
std::vector<PlotPanel> training_panels(std::span<const EpochReport> epochs);

// Returns training_panels() as an SVG text, or writes it to a file. The reports must be in ascending order of epochs.
std::string training_plot_svg(std::span<const EpochReport> epochs, const TrainingPlotOptions& options = {});
void write_training_plot(const std::filesystem::path& path, std::span<const EpochReport> epochs,
                         const TrainingPlotOptions& options = {});

}  // namespace lockstep
