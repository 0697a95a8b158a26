#include "lockstep/train/plot_panel.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <utility>
#include <vector>

#include "lockstep/train/markup.h"

namespace lockstep {
namespace {

constexpr int kIntervals = 5;         // approximate number on a vertical axis
constexpr int kMostMarkers = 40;      // with more points, the line alone is clearer
constexpr double kMargin = 0.04;      // fraction of an axis between its line and the curves
constexpr double kLeastRange = 0.05;  // fraction of the values' magnitude: a smaller range looks like noise
constexpr double kLeastRatio = 30;    // largest to smallest value, for a logarithmic axis

std::vector<CurvePoint> finite_points(const Curve& curve) {
  std::vector<CurvePoint> points;
  std::ranges::copy_if(curve.points, std::back_inserter(points),
                       [](const CurvePoint& p) { return std::isfinite(p.x) && std::isfinite(p.y); });
  return points;
}

std::string value_text(const Curve& curve, double value) {
  return curve.decimals < 0 ? plain_number(value) : fmt::format("{:.{}f}", value, curve.decimals);
}

// Returns "0.85, best 0.87 in epoch 4", or less of it, in at most `most` characters.
std::string summary(const Curve& curve, std::string_view x_name, std::size_t most) {
  const std::vector<CurvePoint> points = finite_points(curve);
  if (points.empty()) return "";
  std::string text = value_text(curve, points.back().y);
  if (curve.best == CurveBest::none) return text;
  const auto best = curve.best == CurveBest::largest ? std::ranges::max_element(points, {}, &CurvePoint::y)
                                                     : std::ranges::min_element(points, {}, &CurvePoint::y);
  const std::string with_best = text + fmt::format(", best {}", value_text(curve, best->y));
  const std::string where = fmt::format(" in {} {}", x_name, plain_number(best->x));
  if (with_best.size() + where.size() <= most) return with_best + where;
  return with_best.size() <= most ? with_best : text;
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
  // Keeps curves off the line of the axis.
  const double margin = kMargin * (axis.high - axis.low);
  axis.low = std::min(axis.low, first - margin);
  return axis;
}

// A logarithmic axis is an axis of the values' decimal logarithms.
struct ValueAxis {
  PlotAxis axis;
  bool logarithmic = false;

  double position(double value) const { return axis.position(logarithmic ? std::log10(value) : value); }
  // Returns values with their labels.
  std::vector<std::pair<double, std::string>> ticks() const {
    std::vector<std::pair<double, std::string>> all;
    if (!logarithmic) {
      for (const double tick : axis.ticks()) all.emplace_back(tick, axis.label(tick));
      return all;
    }
    const bool few = axis.high - axis.low < 3;
    for (double decade = std::floor(axis.low); decade <= axis.high; ++decade) {
      for (const int digit : {1, 2, 5}) {
        const double at = decade + std::log10(digit);
        if (at < axis.low || at > axis.high || (digit > 1 && !few)) continue;
        const double value = digit * std::pow(10.0, decade);
        all.emplace_back(value, fmt::format("{:.3g}", value));
      }
    }
    return all;
  }
};

ValueAxis choose_axis(const PlotPanel& panel, bool may_be_logarithmic) {
  double low = HUGE_VAL, high = -HUGE_VAL;
  for (const Curve& curve : panel.curves) {
    for (const CurvePoint& p : finite_points(curve)) low = std::min(low, p.y), high = std::max(high, p.y);
  }
  if (!may_be_logarithmic || !(low > 0) || high < kLeastRatio * low) return {value_axis(panel)};
  const double least = std::log10(low), most = std::log10(high), margin = kMargin * (most - least);
  return {{least - margin, most + margin, 1}, true};
}

// One panel with its legend, axes, and lines.
class PanelDrawing {
 public:
  PanelDrawing(std::string& svg, const PlotPanel& panel, const PanelPlace& place, const PanelOptions& options)
      : svg_(svg), panel_(panel), place_(place), options_(options),
        y_axis_(choose_axis(panel, options.may_be_logarithmic)) {}

  void draw() {
    draw_axes();
    for (std::size_t i = 0; i < panel_.curves.size(); ++i) {
      const std::size_t color = (options_.first_color + i) % kCurveColors;
      draw_legend(panel_.curves[i], color, place_.legend + static_cast<int>(i) * kLegendRowHeight);
      draw_curve(panel_.curves[i], color);
    }
  }

 private:
  template <typename... Args>
  void add(fmt::format_string<Args...> text, Args&&... args) {
    fmt::format_to(std::back_inserter(svg_), text, std::forward<Args>(args)...);
    svg_ += '\n';
  }
  double x(double value) const { return place_.left + place_.width * options_.x.position(value); }
  double y(double value) const { return place_.top + place_.height * (1 - y_axis_.position(value)); }

  void draw_legend(const Curve& curve, std::size_t color, int middle) {
    add(R"(  <line class="line s{}" x1="{}" x2="{}" y1="{}" y2="{}"/>)", color, place_.legend_left,
        place_.legend_left + 18, middle, middle);
    add(R"(  <text x="{}" y="{}"><tspan class="name">{}</tspan>  {}</text>)", place_.legend_left + 26, middle + 4,
        escape_markup(curve.name), escape_markup(summary(curve, options_.x_name, room_for_summary(curve))));
  }

  // Returns the number of characters that fit beside the name, which is bold. Assumes the widths of wide letters.
  std::size_t room_for_summary(const Curve& curve) const {
    constexpr double kName = 7.5, kText = 6.5;
    const double room = place_.left + place_.width - place_.legend_left - 26;
    return static_cast<std::size_t>(std::max(0.0, (room - kName * static_cast<double>(curve.name.size())) / kText));
  }

  void draw_axes() {
    const int left = place_.left, right = left + place_.width, bottom = place_.top + place_.height;
    for (const auto& [tick, label] : y_axis_.ticks()) {
      add(R"(  <line class="grid" x1="{}" x2="{}" y1="{:.1f}" y2="{:.1f}"/>)", left, right, y(tick), y(tick));
      add(R"(  <text class="tick-y" x="{}" y="{:.1f}">{}</text>)", left - 8, y(tick) + 4, label);
    }
    add(R"(  <line class="axis" x1="{}" x2="{}" y1="{}" y2="{}"/>)", left, right, bottom, bottom);
    for (double tick : options_.x.ticks()) {
      add(R"(  <line class="axis" x1="{:.1f}" x2="{:.1f}" y1="{}" y2="{}"/>)", x(tick), x(tick), bottom, bottom + 4);
      add(R"(  <text class="tick-x" x="{:.1f}" y="{}">{}</text>)", x(tick), bottom + 18, options_.x.label(tick));
    }
    add(R"(  <text class="axis-name" x="{}" y="{}">{}</text>)", left + place_.width / 2, bottom + 36,
        escape_markup(options_.x_name));
  }

  std::string points_of(const Curve& curve, const std::vector<CurvePoint>& points) const {
    if (!options_.with_points) return "";
    std::string xs, ys;
    for (const CurvePoint& p : points) {
      fmt::format_to(std::back_inserter(xs), "{}{}", xs.empty() ? "" : " ", p.x);
      ys += (ys.empty() ? "" : " ") + value_text(curve, p.y);
    }
    return fmt::format(R"( data-name="{}" data-x="{}" data-y="{}")", escape_markup(curve.name), xs, ys);
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
    add(R"(  <path class="line s{}" d="{}"{}/>)", color, path.substr(1), points_of(curve, points));
    const std::size_t first = points.size() <= kMostMarkers ? 0 : points.size() - 1;
    for (const CurvePoint& p : std::span(points).subspan(first)) {
      add(R"(  <circle class="marker f{}" cx="{:.1f}" cy="{:.1f}" r="3.5"/>)", color, x(p.x), y(p.y));
    }
  }

  std::string& svg_;
  const PlotPanel& panel_;
  const PanelPlace place_;
  const PanelOptions options_;
  const ValueAxis y_axis_;
};

}  // namespace

bool has_values(const PlotPanel& panel) {
  return std::ranges::any_of(panel.curves, [](const Curve& curve) { return !finite_points(curve).empty(); });
}

PlotAxis horizontal_axis(std::span<const PlotPanel> panels, const PlotAxisOptions& options, int most_ticks) {
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
  PlotAxis axis =
      whole ? count_axis(static_cast<int>(low), static_cast<int>(high), most_ticks) : round_axis(low, high, most_ticks);
  const double margin = kMargin / 2 * (axis.high - axis.low);
  axis.low -= margin;
  axis.high += margin;
  return axis;
}

void draw_panel(std::string& svg, const PlotPanel& panel, const PanelPlace& place, const PanelOptions& options) {
  PanelDrawing(svg, panel, place, options).draw();
}

std::string panel_svg(const PlotPanel& panel, const PanelPictureOptions& options) {
  constexpr int kWidth = 400, kHeight = 170, kLeft = 50, kRight = 24, kBelow = 44;
  const int top = static_cast<int>(panel.curves.size()) * kLegendRowHeight + 16;
  const PanelPlace place{
      .left = kLeft, .width = kWidth - kLeft - kRight, .legend = 14, .legend_left = 12, .top = top, .height = kHeight};
  const PlotAxis x = horizontal_axis({&panel, 1}, options.x, 6);
  std::string names;
  for (const Curve& curve : panel.curves) names += (names.empty() ? "" : ", ") + escape_markup(curve.name);
  std::string svg = fmt::format(
      "<svg class=\"plot\" viewBox=\"0 0 {} {}\" role=\"img\" aria-label=\"{} by {}\" data-axis=\"{} {} {} {} {} {}\" "
      "data-x=\"{}\">\n",
      kWidth, top + kHeight + kBelow, names, escape_markup(options.x.name), place.left, place.width, place.top,
      place.height, x.low, x.high, escape_markup(options.x.name));
  draw_panel(svg, panel, place,
             {.x = x,
              .x_name = options.x.name,
              .first_color = options.first_color,
              .may_be_logarithmic = options.may_be_logarithmic,
              .with_points = true});
  return svg + "</svg>\n";
}

}  // namespace lockstep
