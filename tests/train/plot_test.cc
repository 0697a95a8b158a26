#include "lockstep/train/plot.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <regex>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/train/plot_panel.h"
#include "tests/expect_error.h"
#include "tests/temporary_folder.h"

namespace lockstep {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

int count(std::string_view text, std::string_view part) {
  int found = 0;
  for (auto at = text.find(part); at != text.npos; at = text.find(part, at + 1)) ++found;
  return found;
}

// Every element closed by its own name, no bare & or <, attributes in quotes: enough to see a broken figure.
void expect_well_formed(std::string_view svg) {
  std::vector<std::string> open;
  for (std::size_t at = svg.find('<'); at != svg.npos; at = svg.find('<', at + 1)) {
    const std::size_t end = svg.find('>', at);
    ASSERT_NE(end, svg.npos);
    const std::string_view tag = svg.substr(at + 1, end - at - 1);
    ASSERT_EQ(count(tag, "<"), 0) << tag;
    ASSERT_EQ(count(tag, "\"") % 2, 0) << tag;
    if (tag.starts_with('/')) {
      ASSERT_FALSE(open.empty());
      ASSERT_EQ(open.back(), tag.substr(1));
      open.pop_back();
    } else if (!tag.ends_with('/')) {
      open.emplace_back(tag.substr(0, tag.find(' ')));
    }
  }
  EXPECT_TRUE(open.empty());
  EXPECT_THAT(std::string(svg), Not(HasSubstr("nan")));
  EXPECT_THAT(std::string(svg), Not(HasSubstr("inf")));
}

EpochReport epoch(int number, double loss, double accuracy) {
  constexpr std::int64_t kTested = 100'000;
  EpochReport report{.epoch = number, .train_loss = loss};
  if (!std::isnan(accuracy)) report.test = {std::llround(accuracy * kTested), kTested};
  return report;
}

std::vector<EpochReport> results(int epochs) {
  std::vector<EpochReport> results;
  for (int e = 1; e <= epochs; ++e) results.push_back(epoch(e, 2.0 / e, 1 - 0.5 / e));
  return results;
}

TEST(TrainingPlot, ShowsBothSeriesWithTheirLatestValues) {
  const std::string svg = training_plot_svg(results(4), {.title = "lenet on [cpu:0]"});
  expect_well_formed(svg);
  EXPECT_THAT(svg, HasSubstr(">lenet on [cpu:0]</text>"));
  // As the tool prints them.
  EXPECT_THAT(svg, HasSubstr("test accuracy</tspan>  0.88, best 0.88 in epoch 4"));
  EXPECT_THAT(svg, HasSubstr("train loss</tspan>  0.500<"));
  EXPECT_EQ(count(svg, "<path"), 2);
  EXPECT_EQ(count(svg, "<circle"), 8);
  EXPECT_EQ(count(svg, " L"), 6);
}

// The places of a curve's markers, left to right.
std::vector<std::pair<double, double>> markers(const std::string& svg, int color) {
  std::vector<std::pair<double, double>> all;
  const std::regex circle("<circle class=\"marker f" + std::to_string(color) + "\" cx=\"([0-9.]+)\" cy=\"([0-9.]+)\"");
  for (std::sregex_iterator at(svg.begin(), svg.end(), circle), end; at != end; ++at) {
    all.emplace_back(std::stod((*at)[1]), std::stod((*at)[2]));
  }
  return all;
}

TEST(TrainingPlot, PlacesPointsByTheirValues) {
  const std::vector<EpochReport> corners{epoch(1, 1.0, 0.0), epoch(2, 0.5, 0.5), epoch(3, 0.0, 1.0)};
  const std::string svg = training_plot_svg(corners);
  const auto accuracy = markers(svg, 0), loss = markers(svg, 1);
  ASSERT_EQ(accuracy.size(), 3U);
  ASSERT_EQ(loss.size(), 3U);
  // Higher values are higher in the picture, where y grows downwards.
  EXPECT_NEAR(accuracy[1].first, (accuracy[0].first + accuracy[2].first) / 2, 0.1);
  EXPECT_NEAR(accuracy[1].second, (accuracy[0].second + accuracy[2].second) / 2, 0.1);
  EXPECT_GT(accuracy[0].second, accuracy[2].second + 150);
  EXPECT_LT(loss[0].second, loss[2].second - 150);
  EXPECT_LT(accuracy[2].first + 50, loss[0].first);  // in the next panel
}

// The y of the line under the first panel.
double axis_line(const std::string& svg) {
  std::smatch found;
  const std::regex line("<line class=\"axis\" x1=\"58\" x2=\"[0-9]+\" y1=\"([0-9.]+)\"");
  return std::regex_search(svg, found, line) ? std::stod(found[1]) : -1;
}

TEST(TrainingPlot, NoCurveLiesOnTheLineOfItsAxis) {
  const std::string svg =
      training_plot_svg(std::vector<EpochReport>{epoch(1, 1.0, 0.0), epoch(2, 0.0, 0.0), epoch(3, 0.0, 1.0)});
  ASSERT_GT(axis_line(svg), 0);
  for (const int color : {0, 1}) {
    for (const auto& [x, y] : markers(svg, color)) EXPECT_LT(y, axis_line(svg) - 4);
  }
}

// 0.38 and 0.39 are nearly the same accuracy.
TEST(TrainingPlot, NoiseDoesNotLookLikeAClimb) {
  const auto height = [](double low, double high) {
    const auto points = markers(training_plot_svg(std::vector<EpochReport>{epoch(1, 1, low), epoch(2, 1, high)}), 0);
    return points.at(0).second - points.at(1).second;
  };
  EXPECT_LT(height(0.38, 0.39), 40);
  EXPECT_LT(height(0.99, 1.0), 40);
  EXPECT_GT(height(0.38, 0.78), 120);
}

TEST(TrainingPlot, OneEpochStandsBesideZero) {
  const std::string svg = training_plot_svg(std::vector<EpochReport>{epoch(1, 0.157, 0.81)});
  EXPECT_EQ(count(svg, "class=\"tick-y\" x=\"50\""), 6) << svg;
  EXPECT_EQ(count(svg, ">0</text>") + count(svg, ">0.0</text>") + count(svg, ">0.00</text>"), 2) << svg;
}

TEST(TrainingPlot, HasOnlyPanelsWithValues) {
  std::vector<EpochReport> loss{{.epoch = 1, .train_loss = 3}, {.epoch = 2, .train_loss = 2}};
  const std::string svg = training_plot_svg(loss);
  expect_well_formed(svg);
  EXPECT_THAT(svg, Not(HasSubstr("accuracy")));
  EXPECT_EQ(count(svg, "class=\"axis-name\""), 1);
  EXPECT_EQ(markers(svg, 1).size(), 2U);  // in the color that it always has
}

TEST(TrainingPlot, ShortensATitleThatIsTooLong) {
  std::string title;
  for (int i = 0; i < 40; ++i) title += "größer, ";
  const std::string svg = training_plot_svg(results(2), {.title = title});
  expect_well_formed(svg);
  EXPECT_THAT(svg, HasSubstr("…</text>"));
  EXPECT_THAT(svg, Not(HasSubstr(title)));
  EXPECT_THAT(training_plot_svg(results(2), {.title = std::string(88, 'x')}), HasSubstr(std::string(88, 'x') + "<"));
}

TEST(Plot, HasColorsForDarkPages) {
  EXPECT_THAT(training_plot_svg(results(2)), HasSubstr("@media (prefers-color-scheme: dark)"));
}

TEST(Plot, DrawsSeveralCurvesInOnePanel) {
  const std::vector<PlotPanel> panels{{{{.name = "train", .points = {{0, 9}, {1, 5}, {2, 3}}},
                                        {.name = "test", .points = {{1, 6}, {2, 4}}, .best = CurveBest::smallest}}},
                                      {{{.name = "learning rate", .points = {{0, 1e-3}, {2, 1e-5}}}}},
                                      {{{.name = "a <b>", .points = {{0.5, -1}}}}}};
  const std::string svg = plot_svg(panels, {.title = "t", .x = {.name = "hour", .high = 4}});
  expect_well_formed(svg);
  EXPECT_EQ(markers(svg, 0).size(), 3U);
  EXPECT_EQ(markers(svg, 1).size(), 2U);
  EXPECT_EQ(markers(svg, 2).size(), 2U);
  EXPECT_EQ(markers(svg, 3).size(), 1U);
  EXPECT_THAT(svg, HasSubstr("test</tspan>  4, best 4 in hour 2"));
  EXPECT_THAT(svg, HasSubstr("a &lt;b&gt;"));
  EXPECT_EQ(count(svg, ">hour</text>"), 3);
  // One axis for both: 4 of "test" lies above 3 of "train".
  EXPECT_LT(markers(svg, 1)[1].second, markers(svg, 0)[2].second);
}

// A panel of a page is 400 wide.
TEST(Plot, ALegendThatIsTooLongIsShorter) {
  PlotPanel panel{{{.name = "test mean squared error",
                    .points = {{1, 4822.123}, {2, 4765.559}},
                    .best = CurveBest::smallest,
                    .decimals = 3}}};
  EXPECT_THAT(panel_svg(panel, {.x = {.name = "epoch"}}), HasSubstr("error</tspan>  4765.559, best 4765.559</text>"));
  panel.curves[0].name = "test";
  EXPECT_THAT(panel_svg(panel, {.x = {.name = "epoch"}}), HasSubstr("4765.559, best 4765.559 in epoch 2</text>"));
}

TEST(Animator, WritesThePictureAtEachPoint) {
  TemporaryFolder folder;
  Animator plot(folder / "a.svg", {.title = "t", .x = {.low = 1, .high = 3}, .panels = {{"train", "test"}, {"lr"}}});
  plot.add(1, {0.5, {}, 0.1});
  expect_well_formed(folder.read("a.svg"));
  EXPECT_EQ(markers(folder.read("a.svg"), 0).size(), 1U);
  EXPECT_EQ(markers(folder.read("a.svg"), 1).size(), 0U);
  plot.add(2, {0.4, 0.6, std::nan("")});
  EXPECT_EQ(folder.read("a.svg"), plot.svg());
  EXPECT_EQ(markers(plot.svg(), 0).size(), 2U);
  EXPECT_EQ(markers(plot.svg(), 1).size(), 1U);
  EXPECT_EQ(markers(plot.svg(), 2).size(), 1U);
  EXPECT_ERROR(plot.add(3, {1.0}), "animator: 1 values for 3 curves, expected one for each");
}

TEST(TrainingPlot, LeavesRoomForTheEpochsToCome) {
  EXPECT_THAT(training_plot_svg(results(2), {.epochs = 10}), HasSubstr(">10</text>"));
  EXPECT_THAT(training_plot_svg(results(2)), Not(HasSubstr(">10</text>")));
}

TEST(TrainingPlot, DrawsWhateverThereIs) {
  for (int epochs : {0, 1, 2, 41, 500}) {
    SCOPED_TRACE(epochs);
    const std::string svg = training_plot_svg(results(epochs));
    expect_well_formed(svg);
    EXPECT_EQ(count(svg, "<path"), epochs == 0 ? 0 : 2);
    EXPECT_EQ(count(svg, "<circle"), epochs <= 40 ? 2 * epochs : 2);
  }
}

TEST(TrainingPlot, WhatIsNotFiniteLeavesAGap) {
  std::vector<EpochReport> gaps = results(6);
  gaps[0].test = {};
  gaps[3].train_loss = std::numeric_limits<double>::infinity();
  const std::string svg = training_plot_svg(gaps);
  expect_well_formed(svg);
  EXPECT_EQ(count(svg, "M"), 3);
  EXPECT_EQ(count(svg, "<circle"), 10);
  const std::vector<EpochReport> none{epoch(1, std::nan(""), std::nan(""))};
  expect_well_formed(training_plot_svg(none));
}

TEST(TrainingPlot, TakesAnyTitle) {
  const std::string svg = training_plot_svg({}, {.title = "a<b & \"c\">\x01 größe"});
  expect_well_formed(svg);
  EXPECT_THAT(svg, HasSubstr("a&lt;b &amp; &quot;c&quot;&gt;  größe</text>"));
}

TEST(TrainingPlot, ReplacesTheFileAsAWhole) {
  TemporaryFolder folder;
  for (int epochs : {1, 2}) {
    write_training_plot(folder / "plot.svg", results(epochs), {.title = "t"});
    EXPECT_EQ(folder.read("plot.svg"), training_plot_svg(results(epochs), {.title = "t"}));
    EXPECT_EQ(folder.entries(), 1);
  }
  EXPECT_ERROR(write_training_plot(folder / "none/plot.svg", {}), "none/plot.svg: No such file or directory");
}

}  // namespace
}  // namespace lockstep
