#include "lockstep/train/plot.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <string_view>
#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/base/file.h"
#include "lockstep/train/plot_axis.h"

namespace lockstep {
namespace {

// Pixels of an SVG of this width; it scales.
constexpr int kWidth = 820, kLeft = 58, kRight = 28, kGap = 76;
constexpr int kPanelHeight = 200, kTop = 54, kLegendRow = 20, kBelow = 66;
constexpr int kIntervals = 5;  // of a vertical axis, about
constexpr int kMostEpochTicks = 10;
constexpr int kMostMarkers = 40;      // beyond, the line alone is clearer
constexpr double kMargin = 0.04;      // of an axis, between its line and the curves
constexpr double kLeastRange = 0.05;  // of the values' magnitude: less looks like noise
constexpr std::size_t kMostTitle = 88, kColors = 6;

constexpr std::string_view kStyle = R"(  <style>
    text { font: 12px system-ui, -apple-system, "Segoe UI", Roboto, "Helvetica Neue", Arial, sans-serif; fill: #4b5563 }
    .title { font-size: 16px; font-weight: 600; fill: #111827 }
    .name { font-size: 13px; font-weight: 600; fill: #111827 }
    .tick-x, .axis-name { text-anchor: middle }
    .tick-y { text-anchor: end }
    .paper { fill: #ffffff }
    .grid { stroke: #e5e7eb }
    .axis { stroke: #9ca3af }
    .line { fill: none; stroke-width: 2.25; stroke-linejoin: round; stroke-linecap: round }
    .marker { stroke: #ffffff; stroke-width: 1.25 }
    .s0 { stroke: #2563eb } .s1 { stroke: #d9480f } .s2 { stroke: #15803d }
    .s3 { stroke: #7c3aed } .s4 { stroke: #a16207 } .s5 { stroke: #0e7490 }
    .f0 { fill: #2563eb } .f1 { fill: #d9480f } .f2 { fill: #15803d }
    .f3 { fill: #7c3aed } .f4 { fill: #a16207 } .f5 { fill: #0e7490 }
    @media (prefers-color-scheme: dark) {
      text { fill: #9ca3af }
      .title, .name { fill: #f3f4f6 }
      .paper { fill: #111827 }
      .grid { stroke: #293241 }
      .axis { stroke: #6b7280 }
      .marker { stroke: #111827 }
      .s0 { stroke: #60a5fa } .s1 { stroke: #fb923c } .s2 { stroke: #4ade80 }
      .s3 { stroke: #c4b5fd } .s4 { stroke: #facc15 } .s5 { stroke: #67e8f9 }
      .f0 { fill: #60a5fa } .f1 { fill: #fb923c } .f2 { fill: #4ade80 }
      .f3 { fill: #c4b5fd } .f4 { fill: #facc15 } .f5 { fill: #67e8f9 }
    }
  </style>
)";

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

// At most this many characters of UTF-8, with "…" for the rest.
std::string cut(std::string_view text, std::size_t most) {
  std::size_t characters = 0, end = 0;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if ((static_cast<unsigned char>(text[i]) & 0xC0) == 0x80) continue;  // inside a character
    if (characters == most - 1) end = i;
    if (++characters > most) return std::string(text.substr(0, end)) + "…";
  }
  return std::string(text);
}

std::vector<CurvePoint> finite_points(const Curve& curve) {
  std::vector<CurvePoint> points;
  std::ranges::copy_if(curve.points, std::back_inserter(points),
                       [](const CurvePoint& p) { return std::isfinite(p.x) && std::isfinite(p.y); });
  return points;
}

bool has_values(const PlotPanel& panel) {
  return std::ranges::any_of(panel.curves, [](const Curve& curve) { return !finite_points(curve).empty(); });
}

std::string value_text(const Curve& curve, double value) {
  return curve.decimals < 0 ? fmt::format("{:.4g}", value) : fmt::format("{:.{}f}", value, curve.decimals);
}

// "0.85, best 0.87 in epoch 4"
std::string summary(const Curve& curve, std::string_view x_name) {
  const std::vector<CurvePoint> points = finite_points(curve);
  if (points.empty()) return "";
  std::string text = value_text(curve, points.back().y);
  if (curve.best == CurveBest::none) return text;
  const auto best = curve.best == CurveBest::largest ? std::ranges::max_element(points, {}, &CurvePoint::y)
                                                     : std::ranges::min_element(points, {}, &CurvePoint::y);
  return text + fmt::format(", best {} in {} {:g}", value_text(curve, best->y), x_name, best->x);
}

PlotAxis value_axis(const PlotPanel& panel) {
  double low = HUGE_VAL, high = -HUGE_VAL, range = 0, least = HUGE_VAL, most = -HUGE_VAL;
  std::size_t values = 0;
  for (const Curve& curve : panel.curves) {
    const std::vector<CurvePoint> points = finite_points(curve);
    if (points.empty()) continue;
    for (const CurvePoint& p : points) low = std::min(low, p.y), high = std::max(high, p.y);
    values = std::max(values, points.size());
    range = std::max(range, curve.least_range);
    least = std::min(least, curve.least);
    most = std::max(most, curve.most);
  }
  if (values == 0) return {0, 1, 0.2};
  least = std::min(least, low);
  most = std::max(most, high);
  const double first = low, magnitude = std::max(std::abs(low), std::abs(high));
  if (values == 1 && magnitude > 0) {
    // A single point shows its size only in relation to zero, so the axis includes zero.
    low = std::min(low, 0.0);
    high = std::max(high, 0.0);
  } else if (range = std::max(range, kLeastRange * magnitude); high - low < range) {
    const double middle = (low + high) / 2;
    low = std::max(least, std::min(middle - range / 2, most - range));
    high = std::min(most, low + range);
  }
  PlotAxis axis = round_axis(low, high, kIntervals);
  axis.low = std::max({axis.low, std::min(first, 0.0), least});
  axis.high = std::min(axis.high, most);
  // No curve lies on the line of the axis.
  const double margin = kMargin * (axis.high - axis.low);
  axis.low = std::min(axis.low, first - margin);
  return axis;
}

PlotAxis horizontal_axis(std::span<const PlotPanel> panels, const PlotAxisOptions& options) {
  double low = HUGE_VAL, high = -HUGE_VAL;
  bool whole = true;
  const auto add = [&](double x) {
    low = std::min(low, x), high = std::max(high, x);
    whole = whole && x == std::floor(x) && std::abs(x) < 1e9;
  };
  for (const PlotPanel& panel : panels) {
    for (const Curve& curve : panel.curves) {
      for (const CurvePoint& p : curve.points) {
        if (std::isfinite(p.x)) add(p.x);
      }
    }
  }
  if (low > high && !options.low && !options.high) add(1);
  if (options.low) add(*options.low);
  if (options.high) add(*options.high);
  PlotAxis axis = whole ? count_axis(static_cast<int>(low), static_cast<int>(high), kMostEpochTicks)
                        : round_axis(low, high, kMostEpochTicks);
  const double margin = kMargin / 2 * (axis.high - axis.low);
  axis.low -= margin;
  axis.high += margin;
  return axis;
}

// One panel with its legend, axes, and lines.
class PanelDrawing {
 public:
  PanelDrawing(std::string& svg, const PlotPanel& panel, const PlotAxis& x, std::string_view x_name,
               std::size_t first_color)
      : svg_(svg), panel_(panel), x_axis_(x), y_axis_(value_axis(panel)), x_name_(x_name), first_color_(first_color) {}

  void draw(int left, int width, int legend, int top) {
    left_ = left, width_ = width, top_ = top;
    draw_axes();
    for (std::size_t i = 0; i < panel_.curves.size(); ++i) {
      const std::size_t color = (first_color_ + i) % kColors;
      draw_legend(panel_.curves[i], color, legend + static_cast<int>(i) * kLegendRow);
      draw_curve(panel_.curves[i], color);
    }
  }

 private:
  template <typename... Args>
  void add(fmt::format_string<Args...> text, Args&&... args) {
    fmt::format_to(std::back_inserter(svg_), text, std::forward<Args>(args)...);
    svg_ += '\n';
  }
  double x(double value) const { return left_ + width_ * x_axis_.position(value); }
  double y(double value) const { return top_ + kPanelHeight * (1 - y_axis_.position(value)); }

  void draw_legend(const Curve& curve, std::size_t color, int middle) {
    add(R"(  <line class="line s{}" x1="{}" x2="{}" y1="{}" y2="{}"/>)", color, left_, left_ + 18, middle, middle);
    add(R"(  <text x="{}" y="{}"><tspan class="name">{}</tspan>  {}</text>)", left_ + 26, middle + 4,
        escape(curve.name), escape(summary(curve, x_name_)));
  }

  void draw_axes() {
    const int right = left_ + width_, bottom = top_ + kPanelHeight;
    for (double tick : y_axis_.ticks()) {
      add(R"(  <line class="grid" x1="{}" x2="{}" y1="{:.1f}" y2="{:.1f}"/>)", left_, right, y(tick), y(tick));
      add(R"(  <text class="tick-y" x="{}" y="{:.1f}">{}</text>)", left_ - 8, y(tick) + 4, y_axis_.label(tick));
    }
    add(R"(  <line class="axis" x1="{}" x2="{}" y1="{}" y2="{}"/>)", left_, right, bottom, bottom);
    for (double tick : x_axis_.ticks()) {
      add(R"(  <line class="axis" x1="{:.1f}" x2="{:.1f}" y1="{}" y2="{}"/>)", x(tick), x(tick), bottom, bottom + 4);
      add(R"(  <text class="tick-x" x="{:.1f}" y="{}">{}</text>)", x(tick), bottom + 18, x_axis_.label(tick));
    }
    add(R"(  <text class="axis-name" x="{}" y="{}">{}</text>)", left_ + width_ / 2, bottom + 36, escape(x_name_));
  }

  void draw_curve(const Curve& curve, std::size_t color) {
    std::string path;
    bool connected = false;
    for (const CurvePoint& p : curve.points) {
      const bool finite = std::isfinite(p.x) && std::isfinite(p.y);
      if (finite) fmt::format_to(std::back_inserter(path), "{}{:.1f} {:.1f}", connected ? " L" : " M", x(p.x), y(p.y));
      connected = finite;
    }
    const std::vector<CurvePoint> points = finite_points(curve);
    if (points.empty()) return;
    add(R"(  <path class="line s{}" d="{}"/>)", color, path.substr(1));
    const std::size_t first = points.size() <= kMostMarkers ? 0 : points.size() - 1;
    for (const CurvePoint& p : std::span(points).subspan(first)) {
      add(R"(  <circle class="marker f{}" cx="{:.1f}" cy="{:.1f}" r="3.5"/>)", color, x(p.x), y(p.y));
    }
  }

  std::string& svg_;
  const PlotPanel& panel_;
  PlotAxis x_axis_, y_axis_;
  std::string_view x_name_;
  std::size_t first_color_;
  int left_ = 0, width_ = 0, top_ = 0;
};

}  // namespace

std::string plot_svg(std::span<const PlotPanel> panels, const PlotOptions& options) {
  struct Drawn {
    const PlotPanel* panel;
    std::size_t color;  // of its first curve; the same whether other panels are empty or not
  };
  std::vector<Drawn> drawn;
  std::size_t color = 0;
  for (const PlotPanel& panel : panels) {
    if (has_values(panel)) drawn.push_back({&panel, color});
    color += panel.curves.size();
  }
  const PlotPanel none;
  if (drawn.empty()) drawn.push_back({panels.empty() ? &none : panels.data(), 0});

  const int columns = drawn.size() == 1 ? 1 : 2;
  const int width = (kWidth - kLeft - kRight - (columns - 1) * kGap) / columns;
  const PlotAxis x = horizontal_axis(panels, options.x);
  const std::string title = escape(cut(options.title.empty() ? "training" : options.title, kMostTitle));
  std::string names, body;
  int top = kTop;
  for (std::size_t i = 0; i < drawn.size(); i += static_cast<std::size_t>(columns)) {
    const auto row = std::span(drawn).subspan(i, std::min<std::size_t>(columns, drawn.size() - i));
    std::size_t legends = 1;
    for (const Drawn& d : row) legends = std::max(legends, d.panel->curves.size());
    const int plot_top = top + static_cast<int>(legends) * kLegendRow + 18;
    for (int column = 0; const Drawn& d : row) {
      PanelDrawing(body, *d.panel, x, options.x.name, d.color)
          .draw(kLeft + column++ * (width + kGap), width, top + 16, plot_top);
      for (const Curve& curve : d.panel->curves) names += (names.empty() ? "" : ", ") + escape(curve.name);
    }
    top = plot_top + kPanelHeight + kBelow;
  }
  const int height = top - 18;
  return fmt::format(
             R"(<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {0} {1}" width="{0}" height="{1}" role="img">
  <title>{2}: {3} by {4}</title>
{5}  <rect class="paper" width="{0}" height="{1}" rx="8"/>
  <text class="title" x="{6}" y="36">{2}</text>
)",
             kWidth, height, title, names, escape(options.x.name), kStyle, kLeft) +
         body + "</svg>\n";
}

void write_plot(const std::filesystem::path& path, std::span<const PlotPanel> panels, const PlotOptions& options) {
  write_file_atomically(path, plot_svg(panels, options));
}

Animator::Animator(std::filesystem::path path, AnimatorOptions options)
    : path_(std::move(path)), options_{.title = std::move(options.title), .x = std::move(options.x)} {
  for (std::vector<std::string>& names : options.panels) {
    PlotPanel& panel = panels_.emplace_back();
    for (std::string& name : names) panel.curves.push_back({.name = std::move(name)});
  }
}

void Animator::add(double x, const std::vector<std::optional<double>>& values) {
  std::size_t curves = 0;
  for (const PlotPanel& panel : panels_) curves += panel.curves.size();
  check(values.size() == curves, "animator: {} values for {} curves, expected one for each", values.size(), curves);
  auto value = values.begin();
  for (PlotPanel& panel : panels_) {
    for (Curve& curve : panel.curves) {
      if (const std::optional<double> y = *value++) curve.points.push_back({x, *y});
    }
  }
  write_plot(path_, panels_, options_);
}

std::string Animator::svg() const { return plot_svg(panels_, options_); }

std::vector<PlotPanel> training_panels(std::span<const EpochReport> epochs) {
  Curve accuracy{
      .name = "test accuracy", .best = CurveBest::largest, .decimals = 2, .least = 0, .most = 1, .least_range = 0.1};
  Curve loss{.name = "train loss", .decimals = 3};
  for (const EpochReport& e : epochs) {
    const auto x = static_cast<double>(e.epoch);
    accuracy.points.push_back({x, e.test.total > 0 ? e.test.value() : std::numeric_limits<double>::quiet_NaN()});
    loss.points.push_back({x, e.train_loss});
  }
  return {{{std::move(accuracy)}}, {{std::move(loss)}}};
}

std::string training_plot_svg(std::span<const EpochReport> epochs, const TrainingPlotOptions& options) {
  PlotOptions plot{.title = options.title};
  if (options.epochs > 0) plot.x.high = options.epochs;
  return plot_svg(training_panels(epochs), plot);
}

void write_training_plot(const std::filesystem::path& path, std::span<const EpochReport> epochs,
                         const TrainingPlotOptions& options) {
  write_file_atomically(path, training_plot_svg(epochs, options));
}

}  // namespace lockstep
