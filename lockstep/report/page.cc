#include "lockstep/report/page.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <limits>
#include <numeric>
#include <span>
#include <string_view>
#include <utility>

#include "lockstep/base/count_of.h"
#include "lockstep/base/sha256.h"
#include "lockstep/report/page_style.h"
#include "lockstep/train/markup.h"
#include "lockstep/train/plot_axis.h"
#include "lockstep/train/plot_panel.h"

namespace lockstep {
namespace {

constexpr std::string_view kDataBegin = "<script type=\"application/json\" id=\"run\">", kDataEnd = "</script>";
constexpr std::size_t kLargestMatrix = 32;  // classes
constexpr std::size_t kMostDrawnSteps = 500;
constexpr std::size_t kMostShownEpochs = 1000;

std::string html(std::string_view text) { return escape_markup(text); }

template <typename... Args>
void put(std::string& page, fmt::format_string<Args...> text, Args&&... args) {
  fmt::format_to(std::back_inserter(page), text, std::forward<Args>(args)...);
}

std::string facts_table(const PageTexts& facts) {
  std::string page = "<table class=\"facts\">\n";
  for (const auto& [name, value] : facts) put(page, "<tr><th>{}</th><td>{}</td></tr>\n", html(name), html(value));
  return page + "</table>\n";
}

// Reduces the steps to at most kMostDrawnSteps: the means over neighbors.
std::vector<PageStep> drawn_steps(const std::vector<PageStep>& steps) {
  const std::size_t together = (steps.size() + kMostDrawnSteps - 1) / kMostDrawnSteps;
  if (together <= 1) return steps;
  std::vector<PageStep> drawn;
  for (std::size_t i = 0; i < steps.size(); i += together) {
    PageStep sum{.count = 0};
    for (const PageStep& s : std::span(steps).subspan(i, std::min(together, steps.size() - i))) add_step(sum, s);
    drawn.push_back(sum);
  }
  return drawn;
}

std::string steps_plots(const std::vector<PageStep>& all) {
  const std::vector<PageStep> steps = drawn_steps(all);
  Curve loss{.name = "loss"}, smooth{.name = "loss, smoothed"}, rate{.name = "learning rate"},
      speed{.name = "examples per second", .decimals = 0};
  const double weight = steps.size() > 40 ? 0.9 : 0;
  double mean = 0, weights = 0;
  const PageStep* before = nullptr;
  for (const PageStep& s : steps) {
    const auto x = static_cast<double>(s.step);
    if (before && s.step - s.count > before->step) {  // steps in between are missing
      const CurvePoint gap{x, std::numeric_limits<double>::quiet_NaN()};
      for (Curve* curve : {&loss, &smooth, &rate, &speed}) curve->points.push_back(gap);
      mean = weights = 0;
    }
    before = &s;
    loss.points.push_back({x, s.loss});
    rate.points.push_back({x, s.learning_rate});
    speed.points.push_back({x, s.images_per_second});
    if (!std::isfinite(s.loss)) continue;
    mean = weight * mean + (1 - weight) * s.loss;
    weights = weight * weights + (1 - weight);
    smooth.points.push_back({x, mean / weights});
  }
  const auto card = [](Curve&& first, std::size_t color, bool logarithmic, Curve* second = nullptr) {
    PlotPanel panel{{std::move(first)}};
    if (second) panel.curves.push_back(std::move(*second));
    return fmt::format(
        "<div class=\"card{}\">{}</div>\n", second ? " faint" : "",
        panel_svg(panel, {.x = {.name = "step"}, .first_color = color, .may_be_logarithmic = logarithmic}));
  };
  std::string page = card(std::move(loss), 0, true, weight > 0 ? &smooth : nullptr);
  const bool constant =
      std::ranges::all_of(steps, [&](const PageStep& s) { return s.learning_rate == steps.front().learning_rate; });
  if (!constant) page += card(std::move(rate), 3, false);
  return page + card(std::move(speed), 5, false);
}

// Distance between the epochs that a page shows, which is above 1 if there are many.
std::size_t epochs_apart(std::size_t epochs) { return (epochs + kMostShownEpochs - 1) / kMostShownEpochs; }

// Reduces the points, but keeps the smallest, the largest, and the last one, which the legend names.
Curve drawn_epochs(const Curve& all) {
  const std::size_t apart = epochs_apart(all.points.size());
  if (apart <= 1) return all;
  std::size_t least = 0, most = 0;
  const auto y = [&](std::size_t i) { return all.points[i].y; };
  for (std::size_t i = 0; i < all.points.size(); ++i) {
    if (!(y(i) >= y(least))) least = std::isnan(y(i)) ? least : i;
    if (!(y(i) <= y(most))) most = std::isnan(y(i)) ? most : i;
  }
  Curve drawn = all;
  drawn.points.clear();
  for (std::size_t i = 0; i < all.points.size(); ++i) {
    if ((i + 1) % apart == 0 || i == least || i == most || i + 1 == all.points.size())
      drawn.points.push_back(all.points[i]);
  }
  return drawn;
}

std::string curves(const ReportPage& p) {
  std::string page;
  std::size_t color = 0;
  for (const PlotPanel& panel : p.panels) {
    if (has_values(panel)) {
      PanelPictureOptions options{.x = {.low = 1}, .first_color = color};
      options.x.high = std::max(1.0, static_cast<double>(std::min(p.planned_epochs, 2 * std::ssize(p.epochs))));
      PlotPanel drawn;
      for (const Curve& curve : panel.curves) drawn.curves.push_back(drawn_epochs(curve));
      put(page, "<div class=\"card\">{}</div>\n", panel_svg(drawn, options));
    }
    color += panel.curves.size();
  }
  if (!p.steps.empty()) page += steps_plots(p.steps);
  if (page.empty()) return "";
  return "<h2>Curves</h2>\n<div class=\"plots\">\n" + page + "</div>\n";
}

std::string epochs_table(const ReportPage& p) {
  if (p.epochs.empty()) return "";
  const bool tested = std::ranges::any_of(p.epochs, [](const EpochReport& e) { return e.test.total > 0; });
  std::vector<std::string> names;
  const auto add_name = [&](const std::string& name) {
    if (std::ranges::find(names, name) == names.end()) names.push_back(name);
  };
  for (const EpochReport& e : p.epochs) {
    for (const MetricResult& m : e.metrics) {
      if (m.name != "accuracy" && m.table.empty()) add_name(m.name);
    }
    for (const auto& [name, value] : e.log) add_name(name);
  }
  std::string page =
      "<h2>Epochs</h2>\n<div class=\"scroll tall\"><table>\n<thead><tr><th>epoch</th><th>seconds</th>"
      "<th>train loss</th>";
  if (tested) page += "<th>test accuracy</th>";
  for (std::string name : names) {
    std::ranges::replace(name, '_', ' ');
    put(page, "<th>{}</th>", html(name));
  }
  page += "</tr></thead>\n<tbody>\n";
  const std::size_t apart = epochs_apart(p.epochs.size());
  for (std::size_t i = 0; i < p.epochs.size(); ++i) {
    const EpochReport& e = p.epochs[i];
    if ((i + 1) % apart != 0 && e.epoch != p.best_epoch && i + 1 != p.epochs.size()) continue;
    put(page, "<tr{}><td>{}</td><td>{:.1f}</td><td>{:.4f}</td>", e.epoch == p.best_epoch ? " class=\"best\"" : "",
        e.epoch, e.seconds, e.train_loss);
    if (tested) put(page, "<td>{}</td>", e.test.total > 0 ? fmt::format("{:.4f}", e.test.value()) : "");
    for (const std::string& name : names) {
      const auto metric = std::ranges::find(e.metrics, name, &MetricResult::name);
      const auto logged = std::ranges::find(e.log, name, &std::pair<std::string, double>::first);
      page += metric != e.metrics.end() ? fmt::format("<td>{}</td>", plain_number(metric->value, 5))
              : logged != e.log.end()   ? fmt::format("<td>{}</td>", plain_number(logged->second, 5))
                                        : "<td></td>";
    }
    page += "</tr>\n";
  }
  page += "</tbody></table></div>\n";
  if (apart > 1) put(page, "<p class=\"soft\">One of {} epochs is shown.</p>\n", apart);
  if (p.best_epoch > 0) put(page, "<p class=\"soft\">Epoch {} is the best.</p>\n", p.best_epoch);
  return page;
}

std::string class_name(const PageResults& r, std::size_t c) {
  return c < r.classes.size() ? r.classes[c] : std::to_string(c);
}

std::string matrix(const PageResults& r) {
  std::string page =
      "<h3>Confusion matrix</h3>\n<p class=\"soft\">Rows are the true classes, columns what the model said.</p>\n"
      "<div class=\"scroll\"><table class=\"matrix\">\n<thead><tr><th></th>";
  const bool short_names = r.classes.size() >= r.confusion.size() &&
                           std::ranges::all_of(r.classes, [](const std::string& name) { return name.size() <= 4; });
  for (std::size_t c = 0; c < r.confusion.size(); ++c) {
    const std::string name = html(class_name(r, c));
    put(page, "<th title=\"{}\">{}</th>", name, short_names ? name : std::to_string(c));
  }
  page += "</tr></thead>\n<tbody>\n";
  for (std::size_t i = 0; i < r.confusion.size(); ++i) {
    const std::vector<double>& row = r.confusion[i];
    const double sum = std::reduce(row.begin(), row.end());
    const std::string name = html(class_name(r, i));
    put(page, "<tr><th title=\"{}\">{}</th>", name,
        short_names || i >= r.classes.size() ? name : fmt::format("{} {}", i, name));
    for (std::size_t j = 0; j < row.size(); ++j) {
      const double share = sum > 0 ? row[j] / sum : 0;
      if (row[j] == 0) {
        page += i == j ? "<td class=\"hit\">0</td>" : "<td></td>";
        continue;
      }
      const bool full = share > 0.6;
      put(page, "<td class=\"{}{}\" style=\"--p:{:.2f}\">{:.0f}</td>", i == j ? "hit" : "miss", full ? " full" : "",
          i == j ? 0.15 + 0.8 * share : 0.1 + 0.9 * share, row[j]);
    }
    page += "</tr>\n";
  }
  return page + "</tbody></table></div>\n";
}

std::string most_confused(const PageResults& r) {
  struct Pair {
    std::size_t truth, said;
    double count;
  };
  std::vector<Pair> pairs;
  for (std::size_t i = 0; i < r.confusion.size(); ++i) {
    for (std::size_t j = 0; j < r.confusion.size(); ++j) {
      if (i != j && r.confusion[i][j] > 0) pairs.push_back({i, j, r.confusion[i][j]});
    }
  }
  if (pairs.empty()) return "";
  std::ranges::stable_sort(pairs, std::greater{}, &Pair::count);
  pairs.resize(std::min<std::size_t>(pairs.size(), 12));
  std::string page =
      "<div><h3>Most often confused</h3>\n<div class=\"scroll\"><table "
      "class=\"left\">\n<thead><tr><th>class</th><th>taken for</th>"
      "<th>examples</th><th>of its class</th></tr></thead>\n<tbody>\n";
  for (const Pair& p : pairs) {
    const double sum = std::reduce(r.confusion[p.truth].begin(), r.confusion[p.truth].end());
    put(page, "<tr><td>{}</td><td>{}</td><td>{:.0f}</td><td>{:.1f} %</td></tr>\n", html(class_name(r, p.truth)),
        html(class_name(r, p.said)), p.count, 100 * p.count / sum);
  }
  return page + "</tbody></table></div></div>\n";
}

std::string bar(double share) {
  return fmt::format("<span class=\"bar\"><i style=\"width:{:.1f}%\"></i></span>", 100 * std::clamp(share, 0.0, 1.0));
}

std::string classes_table(const PageResults& r) {
  struct Line {
    std::size_t label;
    double precision, recall, examples;
  };
  std::vector<Line> all;
  for (std::size_t c = 0; c < r.confusion.size(); ++c) {
    const double examples = std::reduce(r.confusion[c].begin(), r.confusion[c].end());
    double said = 0;
    for (const auto& row : r.confusion) said += row[c];
    const double right = r.confusion[c][c], none = std::numeric_limits<double>::quiet_NaN();
    if (examples + said > 0)
      all.push_back({c, said > 0 ? right / said : none, examples > 0 ? right / examples : none, examples});
  }
  std::string title = "Classes";
  if (all.size() > kLargestMatrix) {
    std::ranges::stable_sort(all, {}, [](const Line& l) { return std::isnan(l.recall) ? 2 : l.recall; });
    all.resize(kLargestMatrix);
    title = fmt::format("The {} classes that are found least", kLargestMatrix);
  }
  std::string page = fmt::format(
      "<div><h3>{}</h3>\n<div class=\"scroll\"><table>\n<thead><tr><th>class</th><th>recall</th><th>precision</th>"
      "<th>examples</th></tr></thead>\n<tbody>\n",
      title);
  const auto cell = [](double share) {
    return std::isnan(share) ? std::string("<td></td>") : fmt::format("<td>{:.1f} %{}</td>", 100 * share, bar(share));
  };
  for (const Line& l : all) {
    put(page, "<tr><td>{}</td>{}{}<td>{:.0f}</td></tr>\n", html(class_name(r, l.label)), cell(l.recall),
        cell(l.precision), l.examples);
  }
  return page + "</tbody></table></div></div>\n";
}

std::string scatter(const PageResults::Scatter& s) {
  constexpr int kSize = 400, kLeft = 58, kTop = 30, kBelow = 46, kRight = 14;
  double low = HUGE_VAL, high = -HUGE_VAL;
  for (const CurvePoint& p : s.points) {
    if (!std::isfinite(p.x) || !std::isfinite(p.y)) continue;
    low = std::min({low, p.x, p.y});
    high = std::max({high, p.x, p.y});
  }
  if (low > high) return "";
  const PlotAxis axis = round_axis(low, high, 5);
  const int width = kSize - kLeft - kRight, height = kSize - kTop - kBelow;
  const auto x = [&](double v) { return kLeft + width * axis.position(v); };
  const auto y = [&](double v) { return kTop + height * (1 - axis.position(v)); };
  std::string page = fmt::format(
      "<div class=\"card\"><svg class=\"plot\" viewBox=\"0 0 {0} {0}\" role=\"img\" aria-label=\"{1}: predictions by "
      "targets\">\n<text x=\"{2}\" y=\"16\" class=\"name\">{1}</text>\n",
      kSize, html(s.name), kLeft);
  for (const double tick : axis.ticks()) {
    put(page, "<line class=\"grid\" x1=\"{}\" x2=\"{}\" y1=\"{:.1f}\" y2=\"{:.1f}\"/>", kLeft, kLeft + width, y(tick),
        y(tick));
    put(page, "<text class=\"tick-y\" x=\"{}\" y=\"{:.1f}\">{}</text>", kLeft - 8, y(tick) + 4, axis.label(tick));
    put(page, "<text class=\"tick-x\" x=\"{:.1f}\" y=\"{}\">{}</text>\n", x(tick), kTop + height + 18,
        axis.label(tick));
  }
  put(page, "<line class=\"axis\" x1=\"{0}\" x2=\"{1}\" y1=\"{2}\" y2=\"{2}\"/>\n", kLeft, kLeft + width,
      kTop + height);
  put(page, "<line class=\"same\" x1=\"{}\" y1=\"{}\" x2=\"{}\" y2=\"{}\"/>\n", kLeft, kTop + height, kLeft + width,
      kTop);
  put(page, "<text class=\"axis-name\" x=\"{}\" y=\"{}\">target; upward: prediction</text>\n", kLeft + width / 2,
      kTop + height + 38);
  for (const CurvePoint& p : s.points) {
    if (!std::isfinite(p.x) || !std::isfinite(p.y)) continue;
    put(page, "<circle class=\"dot\" cx=\"{:.1f}\" cy=\"{:.1f}\" r=\"3\"/>", x(p.x), y(p.y));
  }
  return page + "\n</svg></div>\n";
}

std::string worst_examples(const PageResults& r) {
  if (r.worst.empty()) return "";
  const bool pictures = !r.worst.front().picture.empty();
  std::string page = fmt::format("<h2>Worst examples</h2>\n<p class=\"soft\">Those with the largest {}.</p>\n",
                                 r.scatters.empty() ? "losses" : "errors");
  put(page, "<div class=\"worst{}\">\n", pictures ? "" : " wide");
  for (const PageResults::Example& e : r.worst) {
    page += "<figure class=\"card\">\n";
    if (!e.picture.empty()) {
      put(page, "<img{} src=\"{}\" alt=\"{}\">\n", e.small_picture ? " class=\"pixels\"" : "", html(e.picture),
          html(e.name));
    }
    if (!e.characters.empty()) {
      page += "<span class=\"text\">";
      for (const auto& [character, loss] : e.characters) {
        const double share = std::clamp(loss / 8, 0.0, 1.0);
        if (share < 0.05)
          page += html(character);
        else
          put(page, "<i style=\"--p:{:.2f}\">{}</i>", share, html(character));
      }
      page += "</span>\n";
    }
    std::string truth;
    if (!r.scatters.empty()) {
      truth = fmt::format("<b>{}</b>, expected <b>{}</b><br>", html(e.predicted), html(e.truth));
    } else if (!e.truth.empty() && e.predicted.empty()) {
      truth = fmt::format("<b>{}</b>, right ({:.0f} %)<br>", html(e.truth), 100 * e.probability);
    } else if (!e.truth.empty()) {
      truth = fmt::format("<b>{}</b> taken for <b>{}</b> ({:.0f} %)<br>", html(e.truth), html(e.predicted),
                          100 * e.probability);
    }
    put(page, "<figcaption>{}{}, {} {}</figcaption>\n", truth, html(e.name), r.scatters.empty() ? "loss" : "error",
        plain_number(e.loss));
    if (!e.inputs.empty()) {
      std::string inputs;
      for (const auto& [name, value] : e.inputs) {
        put(inputs, "{}{} <b>{}</b>", inputs.empty() ? "" : ", ", html(name), html(value));
      }
      put(page, "<p>{}</p>\n", inputs);
    }
    page += "</figure>\n";
  }
  return page + "</div>\n";
}

std::string results(const ReportPage& p) {
  if (!p.results || p.results->examples == 0) return "";
  const PageResults& r = *p.results;
  std::string page =
      fmt::format("<h2>Test results</h2>\n<p class=\"soft\">{} test examples, with the {} at the end of the run.</p>\n",
                  r.examples < r.of ? fmt::format("The first {} of {}", with_commas(r.examples), with_commas(r.of))
                                    : fmt::format("All {}", with_commas(r.of)),
                  r.averaged ? "average of the weights" : "weights");
  if (!r.confusion.empty()) {
    if (r.confusion.size() <= kLargestMatrix) page += matrix(r);
    page += "<div class=\"side\">\n" + most_confused(r) + classes_table(r) + "</div>\n";
  }
  if (!r.scatters.empty()) {
    page += "<div class=\"plots\">\n";
    for (const PageResults::Scatter& s : r.scatters) page += scatter(s);
    page += "</div>\n";
  }
  return page + worst_examples(r);
}

// Says "at most", because data_seconds is an upper bound on GPUs.
std::string data_wait(const std::vector<EpochReport>& epochs) {
  double waited = 0, all = 0;
  for (const EpochReport& e : epochs) {
    if (!std::isnan(e.data_seconds)) waited += e.data_seconds, all += e.seconds;
  }
  if (all <= 0) return "";
  return fmt::format(" In the epochs, devices waited for data for at most {:.3g} s, {:.1f} % of the time.", waited,
                     100 * waited / all);
}

// "12.5 ms", "10.2 s"
std::string time_text(double seconds) {
  return seconds < 1 ? fmt::format("{:.3g} ms", 1e3 * seconds) : fmt::format("{:.3g} s", seconds);
}

std::string timeline(const ReportPage& p) {
  if (!p.timeline || p.timeline->lanes.empty()) return "";
  const PageTimeline& t = *p.timeline;
  std::string page = fmt::format("<h2>Timeline</h2>\n<p>{}, {}. ", html(t.what), time_text(t.seconds));
  if (t.hidden_communication) {
    put(page,
        "Communication between ranks took {:.1f} % of the time, and {:.0f} % of it was hidden behind computation; for "
        "{:.1f} % of the time devices only waited for it.",
        100 * t.communication, 100 * *t.hidden_communication, 100 * t.exposed);
  }
  page += data_wait(p.epochs);
  put(page,
      "</p>\n<p class=\"soft\">The picture has the last {}. At the right: the share of all the time in which a "
      "lane was busy; it waited for the rest.</p>\n",
      time_text(t.picture_seconds));
  for (const PageTimeline::Lane& lane : t.lanes) {
    put(page,
        "<div class=\"lane\"><span class=\"name\" title=\"{0}\">{0}</span><svg viewBox=\"0 0 1000 10\" "
        "preserveAspectRatio=\"none\" role=\"img\" aria-label=\"{0}, busy {1:.0f} %\">",
        html(lane.name), 100 * lane.busy);
    for (const PageTimeline::Span& s : lane.spans) {
      put(page, "<rect class=\"g{}\" x=\"{:.1f}\" width=\"{:.1f}\" height=\"10\"/>", s.color, 1000 * s.begin,
          std::max(0.3, 1000 * (s.end - s.begin)));
    }
    put(page, "</svg><span class=\"share\">{:.0f} %</span></div>\n", 100 * lane.busy);
  }
  page +=
      "<div class=\"key\"><span style=\"--k:var(--c0)\">forward</span><span style=\"--k:var(--c1)\">backward</span>"
      "<span style=\"--k:var(--c2)\">update</span><span style=\"--k:var(--c3)\">communication</span>"
      "<span style=\"--k:var(--strong)\">copies, sums</span></div>\n";
  if (t.operations.empty()) return page;
  page +=
      "<h3>Operations</h3>\n<div class=\"scroll\"><table>\n<thead><tr><th>operation</th><th>tasks</th><th>ms</th>"
      "<th>share of all lanes' work</th></tr></thead>\n<tbody>\n";
  double sum = 0;
  for (const PageTimeline::Operation& o : t.operations) sum += o.seconds;
  constexpr std::size_t kMost = 12;
  for (const PageTimeline::Operation& o : std::span(t.operations).first(std::min(kMost, t.operations.size()))) {
    const double share = sum > 0 ? o.seconds / sum : 0;
    put(page, "<tr><td>{}</td><td>{}</td><td>{:.2f}</td><td>{:.1f} %{}</td></tr>\n", html(o.name), with_commas(o.count),
        1e3 * o.seconds, 100 * share, bar(share));
  }
  return page + "</tbody></table></div>\n";
}

// A module as a box that holds the boxes of its children.
struct LayerBox {
  const LayerSummary* layer = nullptr;
  std::string name;  // within its parent
  std::vector<LayerBox> inner{};
};

std::int64_t parameters_in(const LayerBox& box) {
  std::int64_t sum = box.layer->parameters.value_or(0);
  for (const LayerBox& inner : box.inner) sum += parameters_in(inner);
  return sum;
}

std::string_view layer_color(std::string_view kind) {
  const auto has = [&](std::string_view part) { return kind.find(part) != std::string_view::npos; };
  if (has("Conv")) return "var(--c0)";
  if (has("Linear") || has("Embedding")) return "var(--c3)";
  if (has("Norm")) return "var(--c5)";
  if (has("Pool") || has("Flatten")) return "var(--c4)";
  if (has("LSTM") || has("GRU") || has("RNN") || has("Attention")) return "var(--c1)";
  if (has("LU") || has("Sigmoid") || has("Tanh") || has("Softmax")) return "var(--c2)";
  return "var(--strong)";
}

void put_box(std::string& page, const LayerBox& box, bool outermost) {
  const LayerSummary& layer = *box.layer;
  const std::string shape = layer.output ? layer.output->str() : "";
  const std::int64_t parameters = parameters_in(box);
  std::string count = parameters > 0 ? with_commas(parameters) : "";
  if (!count.empty() && layer.state.starts_with("frozen")) count += ", " + layer.state;
  if (box.inner.empty() && !outermost) {
    put(page, "<div class=\"leaf\" style=\"--k:{}\"><b>{}</b> {}<span>{}</span>{}</div>\n", layer_color(layer.kind),
        html(box.name), html(layer.kind), html(shape),
        count.empty() ? "" : fmt::format("<span>{} parameters</span>", count));
    return;
  }
  put(page, "<details class=\"box\" open><summary><b>{}</b>{}{} <span>{}{}{}</span></summary><div class=\"layers\">\n",
      html(box.name), box.name.empty() ? "" : " ", html(layer.kind), html(shape),
      shape.empty() || count.empty() ? "" : ", ", count.empty() ? "" : count + " parameters");
  for (const LayerBox& inner : box.inner) put_box(page, inner, false);
  page += "</div></details>\n";
}

std::string model(const ReportPage& p) {
  if (p.layers.empty()) return "";
  LayerBox root{.layer = &p.layers.front()};
  for (const LayerSummary& layer : std::span(p.layers).subspan(1)) {
    // Names are paths, and a module comes after its parent.
    LayerBox* parent = &root;
    std::string_view rest = layer.name;
    for (bool deeper = true; deeper;) {
      deeper = false;
      for (LayerBox& inner : parent->inner) {
        if (rest.size() > inner.name.size() && rest.starts_with(inner.name) && rest[inner.name.size()] == '.') {
          rest.remove_prefix(inner.name.size() + 1);
          parent = &inner;
          deeper = true;
          break;
        }
      }
    }
    parent->inner.push_back({&layer, std::string(rest)});
  }
  std::string page =
      "<h2>Model</h2>\n<p class=\"soft\">Shapes are those of outputs for one example. Layers are in the "
      "order in which the model names them.</p>\n";
  put_box(page, root, true);
  return page;
}

std::string table_section(std::string_view title, const PageTexts& facts) {
  return facts.empty() ? "" : fmt::format("<h2>{}</h2>\n{}", title, facts_table(facts));
}

}  // namespace

void add_step(PageStep& sum, const PageStep& more) {
  const auto total = static_cast<double>(sum.count + more.count);
  const auto mean = [&](double a, double b) {
    if (sum.count == 0) return b;
    return (a * static_cast<double>(sum.count) + b * static_cast<double>(more.count)) / total;
  };
  sum.loss = mean(sum.loss, more.loss);
  sum.learning_rate = mean(sum.learning_rate, more.learning_rate);
  sum.images_per_second = mean(sum.images_per_second, more.images_per_second);
  sum.count += more.count;
  sum.step = more.step;
  sum.epoch = more.epoch;
}

namespace {

std::string base64(std::string_view bytes) {
  constexpr std::string_view kDigits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string text;
  for (std::size_t i = 0; i < bytes.size(); i += 3) {
    std::uint32_t three = 0;
    const std::size_t here = std::min<std::size_t>(3, bytes.size() - i);
    for (std::size_t k = 0; k < 3; ++k) three = three << 8 | (k < here ? static_cast<unsigned char>(bytes[i + k]) : 0U);
    for (std::size_t k = 0; k < 4; ++k) text += k <= here ? kDigits[three >> (18 - 6 * k) & 63] : '=';
  }
  return text;
}

// Makes a browser run only this script, use only this style, and fetch nothing, whatever names the page has.
std::string content_policy() {
  const auto source = [](std::string_view text) {
    Sha256 hash;
    hash.update(std::as_bytes(std::span(text)));
    return "'sha256-" + base64(hash.digest()) + "'";
  };
  return fmt::format(
      "default-src 'none'; script-src {}; style-src {}; style-src-attr 'unsafe-inline'; img-src data:; "
      "base-uri 'none'; form-action 'none'",
      source(kReportScript), source(kReportStyle));
}

}  // namespace

std::string data_uri(std::string_view media_type, std::string_view bytes) {
  return fmt::format("data:{};base64,{}", media_type, base64(bytes));
}

std::string report_html(const ReportPage& p) {
  std::string page = fmt::format(
      "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n"
      "<meta http-equiv=\"Content-Security-Policy\" content=\"{}\">\n"
      "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n"
      "<meta name=\"color-scheme\" content=\"light dark\">\n<link rel=\"icon\" href=\"data:,\">\n<title>{}</title>\n"
      "<style>{}</style>\n</head>\n<body>\n<h1>{}</h1>\n<p class=\"status{}\">{}</p>\n",
      content_policy(), html(p.title), kReportStyle, html(p.title), p.good ? "" : " bad", html(p.status));
  if (!p.headline.empty()) {
    page += "<div class=\"tiles\">\n";
    for (const auto& [name, value] : p.headline) {
      put(page, "<div class=\"tile\"><b>{}</b><span>{}</span></div>\n", html(value), html(name));
    }
    page += "</div>\n";
  }
  page += curves(p) + epochs_table(p) + results(p) + timeline(p) + model(p);
  page += table_section("Recipe", p.recipe);
  if (!p.command.empty()) put(page, "<h3>Command</h3>\n<pre>{}</pre>\n", html(p.command));
  page += table_section("Hashes", p.hashes) + table_section("Machine", p.machine);
  if (!p.data.empty()) {
    std::string data = p.data;  // as an escape, because </script> would end the data
    for (std::size_t at = 0; (at = data.find('<', at)) != std::string::npos;) data.replace(at, 1, "\\u003c");
    put(page, "{}{}{}\n", kDataBegin, data, kDataEnd);
  }
  put(page, "<script>{}</script>\n</body>\n</html>\n", kReportScript);
  return page;
}

std::string read_page_data(const std::string& html) {
  std::size_t begin = html.find(kDataBegin);
  if (begin == std::string::npos) return "";
  begin += kDataBegin.size();
  const std::size_t end = html.find(kDataEnd, begin);
  return end == std::string::npos ? "" : html.substr(begin, end - begin);
}

}  // namespace lockstep
