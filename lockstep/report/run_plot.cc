#include "lockstep/report/run_plot.h"

#include <algorithm>
#include <map>

namespace lockstep {

std::vector<PlotPanel> run_panels(const std::vector<EpochReport>& epochs, const std::vector<Metric>& metrics,
                                  bool by_others) {
  std::vector<PlotPanel> panels = training_panels(epochs);
  Curve& accuracy = panels[0].curves[0];
  std::vector<PlotPanel> others;
  std::map<std::string, Curve> curves;
  for (const EpochReport& e : epochs) {
    for (const MetricResult& m : e.metrics) {
      if (m.name != "accuracy" && m.table.empty())
        curves[m.name].points.push_back({static_cast<double>(e.epoch), m.value});
    }
  }
  for (auto& [name, curve] : curves) {
    curve.name = name;
    std::ranges::replace(curve.name, '_', ' ');
    const auto metric = std::ranges::find(metrics, name, &Metric::name);
    const bool known = metric != metrics.end(), smallest = known && metric->smaller_is_better;
    if (name.ends_with("_accuracy") && !smallest) {
      Curve more = accuracy;
      more.name = curve.name;
      more.points = curve.points;
      panels[0].curves.push_back(std::move(more));
    } else {
      // A resumed run may have had other metrics before.
      curve.best = !known ? CurveBest::none : smallest ? CurveBest::smallest : CurveBest::largest;
      curve.decimals = 3;
      others.push_back({{curve}});
    }
  }
  if (by_others && !others.empty()) panels.erase(panels.begin());
  panels.insert(by_others ? panels.begin() : panels.end(), others.begin(), others.end());
  return panels;
}

void RunPlot::start(const TrainingStart& start) {
  epochs_ = start.position.epochs;
  if (start.metrics) metrics_ = *start.metrics;
}

void RunPlot::epoch(const EpochReport& report) {
  epochs_.push_back(report);
  draw();
}

void RunPlot::draw() const {
  if (epochs_.empty()) return;
  write_plot(file_, run_panels(epochs_, metrics_, options_.by_others),
             {.title = options_.title, .x = {.low = 1, .high = std::max(1.0, static_cast<double>(options_.epochs))}});
}

}  // namespace lockstep
