// Internal: metrics as text for Prometheus: https://prometheus.io/docs/instrumenting/exposition_formats
//
//   prometheus_text({{.name = "lockstep_loss", .help = "Of the last step.", .samples = {{{}, 0.25}}}})
#pragma once

#include <string>
#include <utility>
#include <vector>

namespace lockstep {

struct PrometheusMetric {
  std::string name;  // letters, digits, and _; that of a counter ends in _total
  std::string help;
  bool counter = false;  // the value only grows; otherwise it is a gauge
  struct Sample {
    std::vector<std::pair<std::string, std::string>> labels;  // any bytes; those that are not UTF-8 become U+FFFD
    double value = 0;
  };
  std::vector<Sample> samples;
};

// Metrics without samples are left out.
std::string prometheus_text(const std::vector<PrometheusMetric>& metrics);

}  // namespace lockstep
