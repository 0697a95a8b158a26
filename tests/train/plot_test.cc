#include "lockstep/train/trainer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <string>
#include <string_view>
#include <vector>

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

std::vector<EpochResult> results(int epochs) {
  std::vector<EpochResult> results;
  for (int e = 1; e <= epochs; ++e) results.push_back({e, 2.0 / e, 1 - 0.5 / e});
  return results;
}

TEST(TrainingPlot, ShowsBothSeriesWithTheirLatestValues) {
  const std::string svg = training_plot_svg(results(4), {.title = "lenet on [cpu:0]"});
  expect_well_formed(svg);
  EXPECT_THAT(svg, HasSubstr(">lenet on [cpu:0]</text>"));
  EXPECT_THAT(svg, HasSubstr("test accuracy</tspan>  0.8750, best 0.8750 in epoch 4"));
  EXPECT_THAT(svg, HasSubstr("train loss</tspan>  0.5<"));
  EXPECT_EQ(count(svg, "<path"), 2);
  EXPECT_EQ(count(svg, "<circle"), 8);
  EXPECT_EQ(count(svg, " L"), 6);
}

TEST(TrainingPlot, PlacesPointsByTheirValues) {
  // Two epochs at the corners of the panels, whose axes end at these values.
  const std::vector<EpochResult> corners{{1, 1.0, 0.0}, {2, 0.0, 1.0}};
  const std::string svg = training_plot_svg(corners);
  EXPECT_THAT(svg, HasSubstr(R"(d="M58.0 292.0 L388.0 92.0")"));
  EXPECT_THAT(svg, HasSubstr(R"(d="M462.0 92.0 L792.0 292.0")"));
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
  std::vector<EpochResult> gaps = results(6);
  gaps[0].test_accuracy = std::nan("");
  gaps[3].train_loss = std::numeric_limits<double>::infinity();
  const std::string svg = training_plot_svg(gaps);
  expect_well_formed(svg);
  EXPECT_EQ(count(svg, "M"), 3);
  EXPECT_EQ(count(svg, "<circle"), 10);
  const std::vector<EpochResult> none{{1, std::nan(""), std::nan("")}};
  expect_well_formed(training_plot_svg(none));
}

TEST(TrainingPlot, TakesAnyTitle) {
  const std::string svg = training_plot_svg({}, {.title = "a<b & \"c\">\x01 größe"});
  expect_well_formed(svg);
  EXPECT_THAT(svg, HasSubstr("a&lt;b &amp; \"c\"&gt;  größe</text>"));
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
