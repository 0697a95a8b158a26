#include "lockstep/train/trainer.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <ranges>
#include <string_view>
#include <utility>
#include <vector>

#include "lockstep/base/file.h"
#include "lockstep/train/plot_axis.h"

namespace lockstep {
namespace {

// Pixels of an SVG of this size; it scales.
constexpr int kWidth = 820, kHeight = 340;
constexpr int kPanelWidth = 330, kPanelHeight = 200, kPanelTop = 92;
constexpr int kPanelLeft[] = {58, 462};
constexpr int kIntervals = 5;  // of a vertical axis, about
constexpr int kMostEpochTicks = 10;
constexpr int kMostMarkers = 40;  // beyond, the line alone is clearer

constexpr std::string_view kStyle = R"(  <style>
    text { font: 12px system-ui, -apple-system, "Segoe UI", Roboto, "Helvetica Neue", Arial, sans-serif; fill: #4b5563 }
    .title { font-size: 16px; font-weight: 600; fill: #111827 }
    .name { font-size: 13px; font-weight: 600; fill: #111827 }
    .tick-x, .axis-name { text-anchor: middle }
    .tick-y { text-anchor: end }
    .grid { stroke: #e5e7eb }
    .axis { stroke: #9ca3af }
    .line { fill: none; stroke-width: 2.25; stroke-linejoin: round; stroke-linecap: round }
    .marker { stroke: #ffffff; stroke-width: 1.25 }
  </style>
)";

struct Point {
  double x = 0, y = 0;
};

struct Series {
  std::string_view name;
  std::string_view color;
  double (*value)(const EpochResult&);
  std::string (*summary)(std::span<const EpochResult>);  // of the finite values; there is at least one
  double most;                                           // no axis goes beyond it
};

std::string escape(std::string_view text) {
  std::string escaped;
  for (char c : text) {
    switch (c) {
      case '&': escaped += "&amp;"; break;
      case '<': escaped += "&lt;"; break;
      case '>': escaped += "&gt;"; break;
      default: escaped += static_cast<unsigned char>(c) < 0x20 ? ' ' : c;  // XML has no control characters
    }
  }
  return escaped;
}

std::string accuracy_summary(std::span<const EpochResult> results) {
  const auto best = std::ranges::max_element(results, {}, &EpochResult::test_accuracy);
  return fmt::format("{:.4f}, best {:.4f} in epoch {}", results.back().test_accuracy, best->test_accuracy, best->epoch);
}

std::string loss_summary(std::span<const EpochResult> results) {
  return fmt::format("{:.4g}", results.back().train_loss);
}

const Series kSeries[] = {
    {"test accuracy", "#2563eb", [](const EpochResult& r) { return r.test_accuracy; }, accuracy_summary, 1.0},
    {"train loss", "#d9480f", [](const EpochResult& r) { return r.train_loss; }, loss_summary, HUGE_VAL}};

// One panel with its legend, axes and line.
class Panel {
 public:
  Panel(std::string& svg, int left, const Series& series, std::span<const EpochResult> results, const PlotAxis& epochs)
      : svg_(svg), left_(left), series_(series), results_(results), epochs_(epochs) {
    for (const EpochResult& result : results) {
      if (std::isfinite(series.value(result))) finite_.push_back(result);
    }
    if (finite_.empty()) return;
    const auto [low, high] = std::ranges::minmax(finite_ | std::views::transform(series.value));
    values_ = round_axis(low, high, kIntervals);
    values_.low = std::max(values_.low, std::min(low, 0.0));
    values_.high = std::min(values_.high, std::max(high, series.most));
  }

  void draw() {
    draw_legend();
    draw_axes();
    draw_line();
  }

 private:
  template <typename... Args>
  void add(fmt::format_string<Args...> text, Args&&... args) {
    fmt::format_to(std::back_inserter(svg_), text, std::forward<Args>(args)...);
  }
  double x(double epoch) const { return left_ + kPanelWidth * epochs_.position(epoch); }
  double y(double value) const { return kPanelTop + kPanelHeight * (1 - values_.position(value)); }

  void draw_legend() {
    add(R"(  <line class="line" stroke="{}" x1="{}" x2="{}" y1="{}" y2="{}"/>)"
        "\n",
        series_.color, left_, left_ + 18, kPanelTop - 22, kPanelTop - 22);
    add(R"(  <text x="{}" y="{}"><tspan class="name">{}</tspan>  {}</text>)"
        "\n",
        left_ + 26, kPanelTop - 18, series_.name, finite_.empty() ? "" : series_.summary(finite_));
  }

  void draw_axes() {
    const int right = left_ + kPanelWidth, bottom = kPanelTop + kPanelHeight;
    for (double tick : values_.ticks()) {
      add(R"(  <line class="grid" x1="{}" x2="{}" y1="{:.1f}" y2="{:.1f}"/>)"
          "\n",
          left_, right, y(tick), y(tick));
      add(R"(  <text class="tick-y" x="{}" y="{:.1f}">{}</text>)"
          "\n",
          left_ - 8, y(tick) + 4, values_.label(tick));
    }
    add(R"(  <line class="axis" x1="{}" x2="{}" y1="{}" y2="{}"/>)"
        "\n",
        left_, right, bottom, bottom);
    for (double tick : epochs_.ticks()) {
      add(R"(  <line class="axis" x1="{:.1f}" x2="{:.1f}" y1="{}" y2="{}"/>)"
          "\n",
          x(tick), x(tick), bottom, bottom + 4);
      add(R"(  <text class="tick-x" x="{:.1f}" y="{}">{}</text>)"
          "\n",
          x(tick), bottom + 18, epochs_.label(tick));
    }
    add(R"(  <text class="axis-name" x="{}" y="{}">epoch</text>)"
        "\n",
        left_ + kPanelWidth / 2, bottom + 36);
  }

  void draw_line() {
    std::string path;
    bool connected = false;
    for (const EpochResult& result : results_) {
      const double value = series_.value(result);
      if (std::isfinite(value)) {
        fmt::format_to(std::back_inserter(path), "{}{:.1f} {:.1f}", connected ? " L" : " M", x(result.epoch), y(value));
      }
      connected = std::isfinite(value);
    }
    if (finite_.empty()) return;
    add(R"(  <path class="line" stroke="{}" d="{}"/>)"
        "\n",
        series_.color, path.substr(1));
    const std::size_t first = finite_.size() <= kMostMarkers ? 0 : finite_.size() - 1;
    for (const EpochResult& result : std::span(finite_).subspan(first)) {
      add(R"(  <circle class="marker" fill="{}" cx="{:.1f}" cy="{:.1f}" r="3.5"/>)"
          "\n",
          series_.color, x(result.epoch), y(series_.value(result)));
    }
  }

  std::string& svg_;
  int left_;
  const Series& series_;
  std::span<const EpochResult> results_;
  std::vector<EpochResult> finite_;
  PlotAxis epochs_, values_{0, 1, 0.2};
};

}  // namespace

std::string training_plot_svg(std::span<const EpochResult> results, const TrainingPlotOptions& options) {
  const int first = results.empty() ? 1 : results.front().epoch;
  const int last = std::max(options.epochs, results.empty() ? 1 : results.back().epoch);
  const PlotAxis epochs = count_axis(first, last, kMostEpochTicks);
  const std::string title = escape(options.title.empty() ? "training" : options.title);

  std::string svg = fmt::format(
      R"(<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {0} {1}" width="{0}" height="{1}" role="img">
  <title>{2}: test accuracy and train loss by epoch</title>
{3}  <rect width="{0}" height="{1}" rx="8" fill="#ffffff"/>
  <text class="title" x="{4}" y="36">{2}</text>
)",
      kWidth, kHeight, title, kStyle, kPanelLeft[0]);
  for (std::size_t i = 0; i < std::size(kSeries); ++i) {
    Panel(svg, kPanelLeft[i], kSeries[i], results, epochs).draw();
  }
  return svg + "</svg>\n";
}

void write_training_plot(const std::filesystem::path& path, std::span<const EpochResult> results,
                         const TrainingPlotOptions& options) {
  write_file_atomically(path, training_plot_svg(results, options));
}

}  // namespace lockstep
