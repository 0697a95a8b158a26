#include "lockstep/report/prometheus_text.h"

#include <fmt/format.h>

#include <cmath>

#include "lockstep/train/markup.h"

namespace lockstep {
namespace {

// Escapes a label or, without `quotes`, a help text.
std::string escape_label(std::string_view text, bool quotes) {
  std::string escaped;
  for (const char c : valid_utf8(text)) {
    if (c == '\n') {
      escaped += "\\n";
    } else {
      if (c == '\\' || (c == '"' && quotes)) escaped += '\\';
      escaped += c;
    }
  }
  return escaped;
}

std::string number_text(double value) {
  if (std::isnan(value)) return "NaN";
  if (std::isinf(value)) return value > 0 ? "+Inf" : "-Inf";
  return fmt::format("{}", value);
}

}  // namespace

std::string prometheus_text(const std::vector<PrometheusMetric>& metrics) {
  std::string text;
  for (const PrometheusMetric& m : metrics) {
    if (m.samples.empty()) continue;
    text += fmt::format("# HELP {} {}\n# TYPE {} {}\n", m.name, escape_label(m.help, false), m.name,
                        m.counter ? "counter" : "gauge");
    for (const PrometheusMetric::Sample& s : m.samples) {
      std::string labels;
      for (const auto& [name, value] : s.labels) {
        labels += fmt::format("{}{}=\"{}\"", labels.empty() ? "" : ",", name, escape_label(value, true));
      }
      text += m.name + (labels.empty() ? "" : "{" + labels + "}") + " " + number_text(s.value) + "\n";
    }
  }
  return text;
}

}  // namespace lockstep
