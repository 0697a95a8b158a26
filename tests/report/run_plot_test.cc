#include "lockstep/report/run_plot.h"

#include <gtest/gtest.h>

namespace lockstep {
namespace {

TEST(RunPlot, TheMetricSaysWhichOfItsValuesIsTheBest) {
  EpochReport epoch{.epoch = 1};
  for (const char* name : {"f2", "perplexity", "top5_accuracy"}) epoch.metrics.push_back({.name = name, .value = 0.5});
  const std::vector<Metric> metrics{
      {.name = "f2"}, {.name = "perplexity", .smaller_is_better = true}, {.name = "top5_accuracy"}};
  const std::vector<PlotPanel> panels = run_panels({epoch}, metrics, true);
  const auto best = [&](std::string_view name) {
    for (const PlotPanel& panel : panels) {
      for (const Curve& curve : panel.curves) {
        if (curve.name == name) return curve.best;
      }
    }
    return CurveBest::none;
  };
  EXPECT_EQ(best("f2"), CurveBest::largest);
  EXPECT_EQ(best("perplexity"), CurveBest::smallest);
}

}  // namespace
}  // namespace lockstep
